mod fixtures;
mod machines;
mod platform;
mod properties;
mod rules;
mod traffic;
