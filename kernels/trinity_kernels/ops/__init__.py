"""The operations of a decoder layer, each a kernel over plan records."""
