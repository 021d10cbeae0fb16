"""Where commands and programs find the passphrase of a secret key."""

PASSPHRASE_VARIABLE = "SECUREFL_PASSPHRASE"
"""Environment variable; whoever may read a process's environment reads it."""
