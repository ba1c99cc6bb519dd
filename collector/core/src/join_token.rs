//! Join tokens of agents that only connect: `docs/decisions/0034-join-tokens.md`.
//!
//! ```text
//! text of an agent ─▶ PresentedToken ─┐
//! stored JSON ─▶ JoinTokens ──────────┼─▶ check ─▶ the user cluster, or a reason
//! source address, time ───────────────┘
//! ```
//! Pure: the caller passes the time, hashes secrets, and makes random bytes.

mod refusals;
mod set;
mod text;

pub use refusals::{TokenRefusal, TokenRefusals};
pub use set::{JoinToken, JoinTokens, MAX_NETWORKS, MAX_TOKENS, TokenSetError};
pub use text::{JoinTokenId, PresentedToken, SecretDigest};
