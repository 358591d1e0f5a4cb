"""What commands do beyond the public API: measuring."""
