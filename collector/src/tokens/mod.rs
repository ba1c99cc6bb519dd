//! Join tokens of agents that only connect (`docs/decisions/0034-join-tokens.md`).
//!
//! ```text
//! API ─ create, revoke ─▶ JoinTokenBook (memory) ─▶ TokenStore (Secret, file)
//! ingest ─ check, used ─▶      ▲
//!                              └─ keep: reads the store now and then, writes the last uses
//! ```

mod book;
mod store;
mod view;

pub use book::{JoinTokenBook, TokenError, keep_tokens};
pub use store::TokenStore;
pub use view::{CreatedToken, JoinTokenView, RefusedTokenView, TokenCreation};
