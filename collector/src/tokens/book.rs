//! The tokens in memory, and their changes.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom as _, SystemRandom},
};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;
use virtfleet_collector_core::{
    enrolment::EnrolmentReason,
    join_token::{
        JoinToken, JoinTokenId, JoinTokens, PresentedToken, SecretDigest, TokenRefusals, TokenSetError,
    },
};

use super::{
    CreatedToken, JoinTokenView, RefusedTokenView, TokenCreation,
    store::{TokenStore, TokenWriteError},
};
use crate::{clock::unix_seconds, fleet::Fleet, leader::WriteAccess};

/// Interval between two reads of the store, and between two writes of last uses.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// Attempts to write while other processes write, too.
const MAX_WRITE_TRIES: usize = 4;
/// Shortest and longest time until a token ends.
const TTL_RANGE: std::ops::RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(8760);

/// Why tokens were not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Only the leader changes tokens.
    #[error("this collector does not lead")]
    NotLeading,
    /// The request cannot be met.
    #[error("{0}")]
    Invalid(String),
    /// There is no such token or user cluster.
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Failed(String),
}

impl From<TokenSetError> for TokenError {
    fn from(error: TokenSetError) -> Self {
        match error {
            TokenSetError::Malformed(_) => Self::Failed(error.to_string()),
            TokenSetError::Full | TokenSetError::TooManyNetworks => Self::Invalid(error.to_string()),
            TokenSetError::Unknown(_) => Self::NotFound(error.to_string()),
        }
    }
}

#[derive(Debug)]
pub struct JoinTokenBook {
    store: TokenStore,
    write_access: WriteAccess,
    /// What the store had when it was read last, or why it could not be read.
    tokens: RwLock<Result<JoinTokens, String>>,
    /// Uses that are not stored yet.
    uses: Mutex<BTreeMap<JoinTokenId, u64>>,
    refusals: Mutex<TokenRefusals>,
    /// One change at a time.
    changes: tokio::sync::Mutex<()>,
}

impl JoinTokenBook {
    /// The tokens in `store`, which [`keep_tokens`] reads.
    pub fn new(store: TokenStore, write_access: WriteAccess) -> Self {
        Self {
            store,
            write_access,
            tokens: RwLock::new(Err("the join tokens have not been read yet".to_owned())),
            uses: Mutex::default(),
            refusals: Mutex::default(),
            changes: tokio::sync::Mutex::default(),
        }
    }

    /// A book without a usable store, with these tokens.
    #[cfg(test)]
    pub(crate) fn fixed(tokens: JoinTokens) -> Self {
        let store = TokenStore::folder(std::path::Path::new("/dev/null"));
        let book = Self::new(store, WriteAccess::fixed(true));
        book.set(Ok(tokens));
        book
    }

    /// Whether this process changes tokens.
    pub fn write_access(&self) -> &WriteAccess {
        &self.write_access
    }

    /// All tokens, by id.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn list(&self) -> Result<Vec<JoinTokenView>, TokenError> {
        match &*self.read() {
            Ok(tokens) => {
                let refusals = self.refusals();
                let view = |token: &JoinToken| JoinTokenView {
                    refused: refusals.of(&token.id).map(RefusedTokenView::from),
                    ..JoinTokenView::from(token)
                };
                Ok(tokens.iter().map(view).collect())
            }
            Err(error) => Err(TokenError::Failed(error.clone())),
        }
    }

    /// Creates a token at `now`, in seconds since 1970. The caller has checked that the user
    /// cluster exists.
    ///
    /// # Errors
    /// Why there is no token.
    pub async fn create(&self, creation: TokenCreation, now: u64) -> Result<CreatedToken, TokenError> {
        if !TTL_RANGE.contains(&creation.ttl.0) {
            let message = format!("ttl: {} is not from 1m to 8760h", creation.ttl);
            return Err(TokenError::Invalid(message));
        }
        let (mut id, mut secret) = ([0; 6], [0; 32]);
        let random = SystemRandom::new();
        random
            .fill(&mut id)
            .and_then(|()| random.fill(&mut secret))
            .map_err(|_| TokenError::Failed("the system has no random numbers".to_owned()))?;
        let presented = PresentedToken::new(JoinTokenId::from_bytes(id), secret);
        let token = JoinToken {
            id: presented.id.clone(),
            secret_sha256: hash(&presented)?,
            cluster: creation.cluster,
            created: now,
            expires: now.saturating_add(creation.ttl.0.as_secs()),
            networks: creation.networks,
            last_used: None,
        };
        self.change(|tokens| Ok(tokens.add(token.clone(), now)?)).await?;
        tracing::warn!(id = %token.id, cluster = %token.cluster, "join token created by an admin");
        Ok(CreatedToken {
            token: presented.reveal(),
            view: JoinTokenView::from(&token),
        })
    }

    /// Removes a token: no agent enrols with it any more. Certificates that were issued stay valid.
    ///
    /// # Errors
    /// Why it was not removed.
    pub async fn revoke(&self, id: &JoinTokenId) -> Result<JoinTokenView, TokenError> {
        let mut removed = None;
        self.change(|tokens| {
            removed = Some(tokens.remove(id)?);
            Ok(())
        })
        .await?;
        tracing::warn!(%id, "join token revoked by an admin");
        removed
            .map(|token| JoinTokenView::from(&token))
            .ok_or_else(|| TokenError::Failed("nothing was removed".to_owned()))
    }

    /// The token that an agent at `address` shows, if it is valid now. Its networks are not
    /// checked. A refusal is recorded.
    ///
    /// # Errors
    /// Why it is not used.
    pub fn check(&self, text: &str, address: IpAddr, now: u64) -> Result<JoinToken, EnrolmentReason> {
        let presented = PresentedToken::parse(text);
        let checked = presented
            .as_ref()
            .ok_or(EnrolmentReason::TokenInvalid)
            .and_then(|presented| self.check_presented(presented, now));
        if let Err(reason) = &checked {
            let id = presented.as_ref().map(|presented| &presented.id);
            let is_known = |id: &&JoinTokenId| {
                let tokens = self.read();
                tokens.as_ref().is_ok_and(|tokens| tokens.get(id).is_some())
            };
            self.refused(id.filter(is_known), *reason, address, now);
        }
        checked
    }

    /// Records that a token was refused. `id` is that of a known token; none if it is unknown.
    pub fn refused(&self, id: Option<&JoinTokenId>, reason: EnrolmentReason, address: IpAddr, now: u64) {
        // Then the store failed, and not the token.
        if reason != EnrolmentReason::NotRecorded {
            self.refusals().record(id, reason, address, now);
        }
    }

    fn check_presented(&self, presented: &PresentedToken, now: u64) -> Result<JoinToken, EnrolmentReason> {
        let shown = hash(presented).map_err(|_| EnrolmentReason::TokenInvalid)?;
        let known = self.read();
        let tokens = known.as_ref().map_err(|_| EnrolmentReason::NotRecorded)?;
        let token = tokens.get(&presented.id).ok_or(EnrolmentReason::TokenInvalid)?;
        if !bool::from(token.secret_sha256.as_bytes().ct_eq(shown.as_bytes())) {
            return Err(EnrolmentReason::TokenInvalid);
        }
        token.check_time(now)?;
        Ok(token.clone())
    }

    /// Records an enrolment with a token. It is stored later.
    pub fn used(&self, id: &JoinTokenId, now: u64) {
        let mut known = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        if let Ok(tokens) = &mut *known
            && tokens.used(id, now)
        {
            let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
            uses.insert(id.clone(), now);
        }
    }

    async fn change(
        &self,
        mut change: impl FnMut(&mut JoinTokens) -> Result<(), TokenError>,
    ) -> Result<(), TokenError> {
        if !self.write_access.leads() {
            return Err(TokenError::NotLeading);
        }
        let one_at_a_time = self.changes.lock().await;
        for _ in 0..MAX_WRITE_TRIES {
            let stored = self.store.read().await.map_err(TokenError::Failed)?;
            let mut tokens = JoinTokens::read(&stored.json)?;
            for (id, at) in self.uses.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                tokens.used(id, *at);
            }
            change(&mut tokens)?;
            let json = tokens.write()?;
            match self.store.write(stored, json).await {
                Ok(()) => {
                    self.set(Ok(tokens));
                    drop(one_at_a_time);
                    return Ok(());
                }
                Err(TokenWriteError::Conflict) => {}
                Err(TokenWriteError::Failed(error)) => return Err(TokenError::Failed(error)),
            }
        }
        let message = "other processes change the join tokens all the time; try again";
        Err(TokenError::Failed(message.to_owned()))
    }

    /// Reads the store again.
    async fn refresh(&self) {
        // Otherwise an older state could replace that of a change.
        let one_at_a_time = self.changes.lock().await;
        let read = self.store.read().await;
        let read = read.and_then(|stored| {
            let mut tokens = JoinTokens::read(&stored.json).map_err(|error| error.to_string())?;
            for (id, at) in self.uses.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                tokens.used(id, *at);
            }
            Ok(tokens)
        });
        if let Err(error) = &read {
            tracing::warn!(error, "no agent enrols with a join token until they can be read");
        }
        self.set(read);
        drop(one_at_a_time);
    }

    /// Stores the last uses.
    async fn flush(&self) {
        let pending = self.uses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if pending.is_empty() || !self.write_access.leads() {
            return;
        }
        if let Err(error) = self.change(|_| Ok(())).await {
            tracing::warn!(%error, "the last uses of join tokens were not stored");
            return;
        }
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        uses.retain(|id, at| pending.get(id) != Some(at));
    }

    fn refusals(&self) -> MutexGuard<'_, TokenRefusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, tokens: Result<JoinTokens, String>) {
        if let Ok(tokens) = &tokens {
            self.refusals().keep(tokens);
        }
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    fn read(&self) -> RwLockReadGuard<'_, Result<JoinTokens, String>> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash(token: &PresentedToken) -> Result<SecretDigest, TokenError> {
    let digest = digest(&SHA256, token.secret().as_bytes());
    let bytes = digest.as_ref().try_into();
    bytes
        .map(SecretDigest::from_bytes)
        .map_err(|_| TokenError::Failed("SHA-256 has another length".to_owned()))
}

/// Reads the tokens now and then, and at once when this process becomes the leader, stores their
/// last uses, and keeps the fleet's findings about refused ones current, until `stop`.
pub async fn keep_tokens(book: Arc<JoinTokenBook>, fleet: Arc<Fleet>, stop: CancellationToken) {
    let mut leadership = book.write_access.changes();
    loop {
        book.refresh().await;
        let found = book.refusals().findings(unix_seconds());
        fleet.change(|index| index.set_join_token_findings(found));
        let changed = async {
            // Without election nothing ever changes.
            if leadership.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {
                book.flush().await;
                return;
            }
            () = changed => {
                // Until the store was read, a token that the former leader revoked would work.
                book.set(Err("another collector led until now".to_owned()));
            }
            () = tokio::time::sleep(REFRESH_INTERVAL) => book.flush().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

    fn creation(networks: &[&str]) -> TokenCreation {
        TokenCreation {
            cluster: "a".parse().unwrap(),
            ttl: virtfleet_wire::settings::Span::seconds(3600),
            networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
        }
    }

    fn book(folder: &std::path::Path) -> JoinTokenBook {
        JoinTokenBook::new(TokenStore::folder(folder), WriteAccess::fixed(true))
    }

    #[tokio::test]
    async fn a_token_works_until_it_ends_or_is_revoked_and_its_secret_is_stored_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = book(folder.path());
        assert_eq!(
            tokens.check("vft1.x.y", PEER, 100),
            Err(EnrolmentReason::TokenInvalid)
        );
        let created = tokens.create(creation(&[]), 100).await.unwrap();
        assert_eq!(
            tokens.check(&created.token, PEER, 200).unwrap().id,
            created.view.id
        );
        assert_eq!(
            tokens.check(&created.token, PEER, 100 + 3600),
            Err(EnrolmentReason::TokenExpired)
        );
        let last = created.token.len() - 1;
        let other = if created.token.ends_with('0') { "1" } else { "0" };
        let guess = format!("{}{other}", &created.token[..last]);
        assert_eq!(
            tokens.check(&guess, PEER, 200),
            Err(EnrolmentReason::TokenInvalid)
        );
        // Those of an unknown token are counted apart.
        let refused = tokens.list().unwrap()[0].refused.clone().unwrap();
        assert_eq!(
            (
                refused.count,
                refused.last_reason,
                refused.last_address,
                refused.last_ms
            ),
            (2, EnrolmentReason::TokenInvalid, PEER, 200_000)
        );
        assert_eq!(tokens.refusals().findings(250).len(), 2);

        let file = folder.path().join("join-tokens.json");
        let stored = std::fs::read_to_string(&file).unwrap();
        let secret = created.token.rsplit_once('.').unwrap().1;
        assert!(!stored.contains(secret), "{stored}");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        // Another process, e.g. after a restart.
        let again = book(folder.path());
        assert_eq!(
            again.check(&created.token, PEER, 200),
            Err(EnrolmentReason::NotRecorded),
            "not read yet"
        );
        again.refresh().await;
        again.check(&created.token, PEER, 200).unwrap();
        again.used(&created.view.id, 250);
        again.flush().await;
        tokens.refresh().await;
        assert_eq!(tokens.list().unwrap()[0].last_used_ms, Some(250_000));
        tokens.revoke(&created.view.id).await.unwrap();
        assert_eq!(
            tokens.check(&created.token, PEER, 200),
            Err(EnrolmentReason::TokenInvalid)
        );
        assert!(matches!(
            tokens.revoke(&created.view.id).await,
            Err(TokenError::NotFound(_))
        ));
    }

    #[tokio::test]
    async fn wrong_requests_and_damaged_stores_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = book(folder.path());
        for seconds in [59, 8761 * 3600] {
            let creation = TokenCreation {
                ttl: virtfleet_wire::settings::Span::seconds(seconds),
                ..creation(&[])
            };
            let error = tokens.create(creation, 100).await.err().unwrap();
            assert!(matches!(error, TokenError::Invalid(_)), "{error}");
        }
        let many = creation(&vec!["10.0.0.0/8"; 33]);
        let error = tokens.create(many, 100).await.err().unwrap();
        assert!(matches!(error, TokenError::Invalid(_)), "{error}");
        let file = folder.path().join("join-tokens.json");
        std::fs::write(&file, "{").unwrap();
        let error = tokens.create(creation(&[]), 100).await.err().unwrap();
        assert!(matches!(error, TokenError::Failed(_)), "{error}");
        tokens.refresh().await;
        tokens.list().unwrap_err();
        std::fs::remove_file(&file).unwrap();
        crate::regular_file::make_fifo(&file);
        let error = tokens.create(creation(&[]), 100).await.err().unwrap();
        assert!(error.to_string().contains("not a regular file"), "{error}");
        let standby = JoinTokenBook::new(TokenStore::folder(folder.path()), WriteAccess::fixed(false));
        let error = standby.create(creation(&[]), 100).await.err().unwrap();
        assert_eq!(error, TokenError::NotLeading);
    }
}
