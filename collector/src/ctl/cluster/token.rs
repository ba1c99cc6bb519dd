//! Where a token comes from.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{Request, Response, header::AUTHORIZATION};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    client::{Body, ConfigExt as _},
};
use tokio::sync::Mutex;
use tower::{BoxError, ServiceBuilder, ServiceExt as _, util::BoxCloneSyncService};

use super::{
    account::AccountName,
    attempts::AttemptToken,
    failure::{AttemptFailure, failure},
};
use crate::ctl::{fail::Fail, token_file};

/// Requested lifetime of a token: the minimum that an API server grants.
const TOKEN_LIFETIME: Duration = Duration::from_mins(10);
/// A requested token is replaced so long before its end.
const RENEWAL_MARGIN: Duration = Duration::from_mins(1);

/// The token of a kubeconfig: a value, a file, or the output of a program.
#[derive(Clone)]
pub(super) struct OwnToken(BoxCloneSyncService<Request<Body>, Response<Option<String>>, BoxError>);

impl OwnToken {
    /// The token of a kubeconfig; none if it has another kind of credentials.
    pub(super) fn of(config: &Config) -> Result<Option<Self>, Fail> {
        let failed = |error: &dyn std::fmt::Display| {
            Fail::Usage(format!(
                "the credentials of the kubeconfig cannot be used: {error}"
            ))
        };
        let Some(layer) = config.auth_layer().map_err(|error| failed(&error))? else {
            return Ok(None);
        };
        // The layer adds the header to a request, which is not sent.
        let read = tower::service_fn(|request: Request<Body>| async move {
            let header = request.headers().get(AUTHORIZATION);
            let token = header.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
            Ok::<_, BoxError>(Response::new(token.map(str::to_owned)))
        });
        let service = ServiceBuilder::new().layer(layer).service(read);
        Ok(Some(Self(BoxCloneSyncService::new(service))))
    }

    pub(super) async fn read(&self) -> Result<Option<String>, Fail> {
        let answer = self.0.clone().oneshot(Request::new(Body::empty())).await;
        let token =
            answer.map_err(|error| Fail::Usage(format!("the kubeconfig has no usable token: {error}")))?;
        Ok(token.into_body())
    }
}

/// Short-lived tokens of a ServiceAccount.
pub(super) struct AccountTokens {
    accounts: Api<ServiceAccount>,
    account: AccountName,
    audience: String,
    /// The last token, with the time until which it is used.
    last: Mutex<Option<(String, Instant)>>,
}

/// Source of tokens for one attempt. Cheap to clone.
#[derive(Clone)]
pub(super) enum TokenSource {
    File(PathBuf),
    Own(OwnToken),
    Requested(Arc<AccountTokens>),
}

impl TokenSource {
    pub(super) fn new(
        token: &AttemptToken,
        client: &Client,
        own: Option<&OwnToken>,
        audience: &str,
    ) -> Result<Self, Fail> {
        Ok(match token {
            AttemptToken::File(file) => Self::File(file.clone()),
            AttemptToken::Own => {
                let own = own.cloned();
                Self::Own(own.ok_or_else(|| Fail::Usage("the kubeconfig has no token".to_owned()))?)
            }
            AttemptToken::Requested(account) => Self::Requested(Arc::new(AccountTokens {
                accounts: Api::namespaced(client.clone(), &account.namespace),
                account: account.clone(),
                audience: audience.to_owned(),
                last: Mutex::default(),
            })),
        })
    }

    pub(super) async fn token(&self) -> Result<String, Result<AttemptFailure, Fail>> {
        match self {
            Self::File(file) => token_file::read(file).map_err(Err),
            Self::Own(own) => {
                let token = own.read().await.map_err(Err)?;
                token.ok_or_else(|| Ok(AttemptFailure("it has none".to_owned())))
            }
            Self::Requested(tokens) => tokens.token().await,
        }
    }
}

impl AccountTokens {
    /// The last token, or a new one.
    async fn token(&self) -> Result<String, Result<AttemptFailure, Fail>> {
        let mut last = self.last.lock().await;
        let now = Instant::now();
        if let Some((token, until)) = &*last
            && now < *until
        {
            return Ok(token.clone());
        }
        let (token, lifetime) = self.request().await?;
        *last = Some((token.clone(), now + lifetime.saturating_sub(RENEWAL_MARGIN)));
        Ok(token)
    }

    /// A new token for the collector's audience, and its lifetime.
    async fn request(&self) -> Result<(String, Duration), Result<AttemptFailure, Fail>> {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec![self.audience.clone()],
                expiration_seconds: Some(TOKEN_LIFETIME.as_secs().cast_signed()),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let name = &self.account.name;
        let parameters = PostParams::default();
        let requested = self.accounts.create_token_request(name, &parameters, &request);
        let answer = requested.await.map_err(|error| failure(&error))?;
        let Some(status) = answer.status else {
            return Err(Ok(AttemptFailure("the API server returns no token".to_owned())));
        };
        let left = status.expiration_timestamp.0.as_second() - jiff::Timestamp::now().as_second();
        let lifetime = Duration::from_secs(u64::try_from(left).unwrap_or_default());
        Ok((status.token, lifetime))
    }
}
