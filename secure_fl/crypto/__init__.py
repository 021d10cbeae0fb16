"""What signing, sealing, digests and identities share, for sums and for the service alike."""
