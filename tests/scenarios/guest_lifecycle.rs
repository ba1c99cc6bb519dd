//! Installation and later life of an agent in a real guest:
//! - `kkp`: Kubermatic's bootstrap runs cloud-init a second time and then disables it.
//! - `ignition`: Ignition installs the agent instead of cloud-init.
//! - `package`: the Debian package is installed and removed. In between the page is compared with
//!   node_exporter's (`node_exporter`), and the kernel kills a pod for lack of memory (`pods`).
//! - `baked`: an image has the agent, and user-data brings settings only.
//! - `settings`: settings change, a disk is attached, and the binary is upgraded.
//! - `table`: each of these `platforms` with each event, from the first boot to the removal.

mod baked;
mod ignition;
mod kit;
mod kkp;
mod node_exporter;
mod package;
mod platforms;
mod pods;
mod settings;
mod table;
