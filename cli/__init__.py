"""The securefl command."""
