//! See below; made with the cluster inventory.
