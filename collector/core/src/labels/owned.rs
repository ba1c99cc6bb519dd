//! The ownership annotation: which labels we wrote, over what, and after which placement.

/// The annotation on the user cluster's Node.
pub const ANNOTATION: &str = "virtfleet.io/owned-labels";
