"""Who can read what, in sentences; the same for every engine."""

READERS = (
    "The querier, holding secret.key, reads answers, and every contribution if it is handed one.",
    "Contributors, holding public.key, read nothing, not even what they sent.",
    "The evaluator, holding evaluation.key and public.key, reads nothing.",
    "Querier and evaluator together read every contribution: one integer per client and query,"
    " the smallest code and its class.",
    "Never publish decrypted answers next to their ciphertexts.",
)
