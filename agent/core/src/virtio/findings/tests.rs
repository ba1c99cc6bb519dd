mod fixtures;
mod machines;
mod properties;
mod rules;
mod traffic;
