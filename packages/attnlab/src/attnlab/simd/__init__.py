"""A small compiler: one step of a small model, with many models in the elements of a processor's
vectors. It knows neither attention nor training; docs/simd.md says how it works."""
