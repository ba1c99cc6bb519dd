//! The harness of the scenario tests.
