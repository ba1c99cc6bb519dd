//! Who watches what is done to disks: nobody, or a test that ends the process at a point of its choice.

/// Is told each point between two effects.
pub trait Witness {
    /// All before `point` is done, nothing after it is.
    fn at(&self, point: &str);
}

/// Nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Witness for Unwatched {
    fn at(&self, _point: &str) {}
}
