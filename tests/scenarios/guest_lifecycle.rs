//! What happens to an agent in a guest after it has come: other software that runs cloud-init again, boots without cloud-init,
//! settings that change, upgrades, the package, and Ignition in the place of cloud-init.

#[path = "guest_lifecycle/beside.rs"]
mod beside;
#[path = "guest_lifecycle/ignition.rs"]
mod ignition;
#[path = "guest_lifecycle/kit.rs"]
mod kit;
#[path = "guest_lifecycle/kkp.rs"]
mod kkp;
#[path = "guest_lifecycle/package.rs"]
mod package;
#[path = "guest_lifecycle/pods.rs"]
mod pods;
#[path = "guest_lifecycle/settings.rs"]
mod settings;
