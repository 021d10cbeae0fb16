"""The shapes of the service's JSON, as its OpenAPI schema shows them."""

from pydantic import BaseModel, ConfigDict, Field


class Opening(BaseModel):
    """What opens a batch."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    queries: int = Field(ge=1, description="In all, known answers among them.")
    quorum: int = Field(ge=1, description="Contributors that an answer needs at least.")
    patience: float = Field(ge=0, description="Seconds to wait for more than the quorum.")
    expires: float = Field(description="Seconds since 1970; no contribution is taken later.")
    sealed: dict[str, str] = Field(
        default={}, description="Sealed query of each client that is asked, base64."
    )
    apart: list[str] = Field(
        default=[],
        description="Engine bgv: clients that are asked; sealed queries are sent one by one.",
    )


class Status(BaseModel):
    """How far a batch is."""

    state: str
    reason: str
    done: int = Field(description="Blocks of queries evaluated.")
    total: int = Field(description="Blocks in all, 0 before the evaluation.")
    present: list[str] = Field(description="Clients that the answer rests on.")
    clients: dict[str, str] = Field(
        description='Each "announced" (its sealed query is not here yet), "asked", "sent" or'
        ' "declined".'
    )
    refusals: dict[str, str] = Field(
        description="Reasons of clients that declined, sealed to the querier, base64."
    )


class Asked(BaseModel):
    """Batches that wait for the caller's contribution."""

    batches: list[str]


class Part(BaseModel):
    """What the caller is to a batch."""

    state: str = Field(description='"announced", "asked", "sent" or "declined".')


class Detail(BaseModel):
    """Why a request was refused, or what was done."""

    detail: str
    reason: str = Field("", description="Of a refusal, a word of a fixed list.")


class Health(BaseModel):
    """Whether the service works."""

    status: str
    evaluation_process: bool
    waiting: int | None = Field(description="Batches; null while the database is locked.")
    loops: dict[str, bool] = Field(description="Whether each of its loops does its work.")


class ContributorHealth(BaseModel):
    """Whether a contributor works."""

    status: str
    evaluator: bool = Field(description="Whether the evaluator answered its last call.")
    loops: dict[str, bool] = Field(description="Whether each of its loops does its work.")
