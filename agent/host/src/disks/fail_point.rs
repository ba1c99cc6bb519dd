//! Fail points: tests end the process at a chosen point between two effects on a disk.

/// Called at each point between two effects.
pub trait FailPoints {
    /// All effects before `point` are complete; none after it has begun.
    fn at(&self, point: &str);
}

/// Ignores all fail points.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFailPoints;

impl FailPoints for NoFailPoints {
    fn at(&self, _point: &str) {}
}
