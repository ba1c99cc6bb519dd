//! What both programs run on.
