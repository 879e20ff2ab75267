"""Hold estimates against reality: published measurements, and the bands they leave."""
