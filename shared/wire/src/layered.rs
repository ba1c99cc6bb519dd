//! YAML fragments → one merged, located, checked value.
