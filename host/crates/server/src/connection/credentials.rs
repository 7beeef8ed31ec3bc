//! Changing bearer tokens, from a file or a command.
//!
//! All clients of a process share them, so a command runs once per token.

use std::{
    fs, io,
    path::PathBuf,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::future::{BoxFuture, FutureExt as _};
use http::{
    HeaderValue, Request,
    header::{AUTHORIZATION, InvalidHeaderValue},
};
use jiff::{SignedDuration, Timestamp};
use kube::config::ExecConfig;
use parking_lot::Mutex;
use tokio::{sync::Mutex as Turn, task::spawn_blocking};
use tower::{BoxError, Service};

use super::exec;

/// How long a token from a file is used, as in client-go.
const FILE_PERIOD: SignedDuration = SignedDuration::from_mins(1);

/// How long before its expiry a token is replaced, so that it does not expire in flight.
const EXPIRES_EARLY: SignedDuration = SignedDuration::from_secs(10);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// The kubeconfig's `tokenFile` is missing or unreadable.
    #[error("failed to read the token file {}", path.display())]
    ReadFile {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The kubeconfig's `tokenFile` is empty.
    #[error("the token file {} is empty", path.display())]
    EmptyFile { path: PathBuf },
    #[error(transparent)]
    Exec(#[from] exec::Error),
    /// A token contains a control character.
    #[error("the token has characters that no token has")]
    Token(#[source] InvalidHeaderValue),
    /// The host ended while a kubeconfig's command ran.
    #[error("the command was not run to its end")]
    Aborted,
}

/// A token and its source.
pub(super) struct ChangingToken {
    source: TokenSource,
    token: Mutex<Token>,
    /// Locked while the token is replaced.
    turn: Turn<()>,
}

enum TokenSource {
    File(PathBuf),
    Exec(Arc<ExecConfig>),
}

struct Token {
    header: HeaderValue,
    /// None if the token never expires.
    expires: Option<Timestamp>,
}

impl Token {
    fn new(token: &str, expires: Option<Timestamp>) -> Result<Self, Error> {
        let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(Error::Token)?;
        header.set_sensitive(true);
        Ok(Self { header, expires })
    }

    /// Reads a file without surrounding space, which editors and shells leave.
    fn read(path: &PathBuf) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|source| Error::ReadFile {
            path: path.clone(),
            source,
        })?;
        match text.trim() {
            "" => Err(Error::EmptyFile { path: path.clone() }),
            token => Self::new(token, Some(Timestamp::now() + FILE_PERIOD)),
        }
    }

    fn printed(printed: &exec::Printed) -> Result<Self, Error> {
        Self::new(&printed.token, printed.expires)
    }

    fn is_due(&self) -> bool {
        let then = Timestamp::now() + EXPIRES_EARLY;
        self.expires.is_some_and(|expires| then >= expires)
    }
}

impl ChangingToken {
    pub(super) fn from_file(path: PathBuf) -> Result<Self, Error> {
        let token = Token::read(&path)?;
        Ok(Self::new(TokenSource::File(path), token))
    }

    /// Uses the token that the command printed first.
    pub(super) fn from_exec(exec: ExecConfig, printed: &exec::Printed) -> Result<Self, Error> {
        let token = Token::printed(printed)?;
        Ok(Self::new(TokenSource::Exec(Arc::new(exec)), token))
    }

    fn new(source: TokenSource, token: Token) -> Self {
        Self {
            source,
            token: Mutex::new(token),
            turn: Turn::new(()),
        }
    }

    fn is_due(&self) -> bool {
        self.token.lock().is_due()
    }

    fn header(&self) -> HeaderValue {
        self.token.lock().header.clone()
    }

    /// Replaces the token, unless another client already has.
    async fn replace(self: Arc<Self>) -> Result<(), Error> {
        // All clients notice the expiry together, and only the first one may run the command.
        let _turn = self.turn.lock().await;
        if !self.is_due() {
            return Ok(());
        }
        match &self.source {
            TokenSource::File(path) => match Token::read(path) {
                Ok(token) => *self.token.lock() = token,
                // The last token may still be valid: some tools remove the file once it was read.
                Err(_) => self.token.lock().expires = Some(Timestamp::now() + FILE_PERIOD),
            },
            TokenSource::Exec(exec) => {
                let exec = Arc::clone(exec);
                let printed = spawn_blocking(move || exec::run_command(&exec))
                    .await
                    .map_err(|_| Error::Aborted)??;
                *self.token.lock() = Token::printed(&printed)?;
            }
        }
        Ok(())
    }
}

/// Adds the token to requests.
pub struct Authorized<S> {
    inner: S,
    credentials: Option<Arc<ChangingToken>>,
    replacing: Option<BoxFuture<'static, Result<(), Error>>>,
    /// The next request's failure. An error from `poll_ready` would end the client.
    failure: Option<Error>,
}

impl<S> Authorized<S> {
    pub(super) fn new(inner: S, credentials: Option<Arc<ChangingToken>>) -> Self {
        Self {
            inner,
            credentials,
            replacing: None,
            failure: None,
        }
    }
}

impl<S, B> Service<Request<B>> for Authorized<S>
where
    S: Service<Request<B>, Error = BoxError>,
    S::Response: Send + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if let Some(credentials) = &self.credentials
            && self.replacing.is_none()
            && credentials.is_due()
        {
            self.replacing = Some(Arc::clone(credentials).replace().boxed());
        }
        if let Some(replacing) = &mut self.replacing {
            let result = ready!(replacing.poll_unpin(context));
            self.replacing = None;
            self.failure = result.err();
        }
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if let Some(failure) = self.failure.take() {
            return async { Err(failure.into()) }.boxed();
        }
        if let Some(credentials) = &self.credentials {
            request
                .headers_mut()
                .insert(AUTHORIZATION, credentials.header());
        }
        self.inner.call(request).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_from_a_file_has_no_surrounding_space() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            let token = Token::read(&path).map_err(|error| error.to_string());
            token.map(|token| token.header.to_str().unwrap().to_owned())
        };
        let path_is_empty = format!("the token file {} is empty", path.display());
        for (text, expected) in [
            ("t", Ok("Bearer t")),
            ("t\n", Ok("Bearer t")),
            (" t\r\n", Ok("Bearer t")),
            ("", Err(&*path_is_empty)),
            (" \n", Err(&*path_is_empty)),
            ("a\nb", Err("the token has characters that no token has")),
        ] {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(read(text), expected, "{text:?}");
        }
    }

    #[tokio::test]
    async fn a_token_is_reloaded_only_when_it_is_due() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "first\n").unwrap();
        let credentials = Arc::new(ChangingToken::from_file(path.clone()).unwrap());
        fs::write(&path, "second\n").unwrap();
        Arc::clone(&credentials).replace().await.unwrap();
        assert_eq!(credentials.header(), "Bearer first");
        let expire = || credentials.token.lock().expires = Some(Timestamp::UNIX_EPOCH);
        expire();
        Arc::clone(&credentials).replace().await.unwrap();
        assert_eq!(credentials.header(), "Bearer second");
        fs::remove_file(&path).unwrap();
        expire();
        Arc::clone(&credentials).replace().await.unwrap();
        assert_eq!(credentials.header(), "Bearer second");
        assert!(!credentials.is_due());
    }
}
