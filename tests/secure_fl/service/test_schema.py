"""The running evaluator keeps to its own OpenAPI schema, whatever is sent to it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

pytest.importorskip("prometheus_client", reason="needs the extra `service` (securefl[service])")
pytest.importorskip("schemathesis", reason="needs the extra `test`")

import requests
import schemathesis
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from secure_fl.demo.service_parties import copy_parties, deployment
from secure_fl.service.signing import SCHEME, new_request, signed
from tests.secure_fl.service.parties import Players

EXCLUDED = [
    # A body that fits the schema may still be of no batch.
    positive_data_acceptance,
    # Calls without a signature are made here, and `check_unsigned` looks at them.
    ignored_auth,
]


class Signed(requests.auth.AuthBase):
    """Signs requests as a member."""

    def __init__(self, member, federation):
        self.member, self.federation = member, federation

    def __call__(self, request):
        body = request.body or b""
        content = body.encode() if isinstance(body, str) else body
        facts = (self.federation, request.method, request.path_url, content)
        claims = new_request(self.member, "evaluator", *facts)
        request.headers["Authorization"] = f"{SCHEME} {signed(self.member, claims)}"
        return request


def check_unsigned(operation, response):
    if "{federation}" in operation.path:
        assert response.status_code in (401, 404, 405, 422, 429)


def exercise(operation, mode, signers, real, statuses):
    """Calls one operation with names that are real and made up, by each signer and by nobody."""

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=4, database=None, suppress_health_check=list(HealthCheck))
    def calls(case):
        for auth in (None, *signers):
            for names in ({}, real):
                parameters = {**case.path_parameters, **names}
                here = operation.Case(
                    method=case.method,
                    path_parameters={k: parameters[k] for k in case.path_parameters},
                    # Waiting for news would only take time.
                    query={**case.query, "wait": 0} if "wait" in case.query else case.query,
                    body=case.body,
                    media_type=case.media_type,
                )
                response = here.call(auth=auth)
                here.validate_response(response, excluded_checks=EXCLUDED)
                statuses.setdefault(operation.label, set()).add(response.status_code)
                if auth is None:
                    check_unsigned(operation, response)

    calls()


def test_the_evaluator_answers_as_its_schema_says(made, tmp_path):
    """Good and bad data to every operation, with real names and made-up ones."""
    copy_parties(made.folder, tmp_path / "parties")
    with deployment(tmp_path / "parties") as running:
        running.start("evaluator", "--rate", "10000", "--burst", "10000")
        players, federation = Players(made, running), made.manifest.fingerprint
        real = {"federation": federation, "batch": players.open(slice(0, 2))}
        signers = [Signed(players.member(name), federation) for name in ("querier", "north")]
        schema = schemathesis.openapi.from_url(f"{running.url()}/openapi.json")
        statuses: dict[str, set[int]] = {}
        for result in schema.get_all_operations():
            operation = result.ok()
            exercise(operation, GenerationMode.POSITIVE, signers, real, statuses)
            try:
                exercise(operation, GenerationMode.NEGATIVE, signers, real, statuses)
            except Unsatisfiable:
                assert operation.label in ("GET /health", "GET /metrics")
        # What is drawn may be refused for other reasons alone.
        asked = f"{running.url()}/v1/{federation}/asked?wait=soon"
        statuses["GET /v1/{federation}/asked"].add(
            requests.get(asked, auth=signers[1], timeout=20).status_code
        )
        assert running.health()["status"] == "ok"
        assert "Traceback" not in running.log("evaluator")
    assert len(statuses) == 15
    assert {200, 401, 403, 422} <= statuses["GET /v1/{federation}/asked"]
    assert all(status < 500 for found in statuses.values() for status in found), statuses
