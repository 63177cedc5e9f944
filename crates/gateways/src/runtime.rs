//! Binds the connections of a client to the runtime that made the client.
//!
//! A connection lives on the runtime that opened it. HTTP threads have runtimes of their own: without the binding, a
//! thread that ends would break pooled connections that others use.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper::rt::Executor;
use tokio::runtime::{Handle, TryCurrentError};
use tokio_util::task::AbortOnDropHandle;
use tower_service::Service;

/// The runtime of a client's connections.
#[derive(Clone)]
pub(crate) struct ConnectionRuntime(Handle);

impl ConnectionRuntime {
    /// The runtime of the caller.
    pub(crate) fn current() -> Result<Self, TryCurrentError> {
        Handle::try_current().map(Self)
    }

    /// A connector that connects on this runtime.
    pub(crate) fn connect<C>(&self, connector: C) -> BoundConnector<C> {
        BoundConnector {
            connector,
            runtime: self.0.clone(),
        }
    }
}

impl<F> Executor<F> for ConnectionRuntime
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

/// See [`ConnectionRuntime::connect`].
#[derive(Clone)]
pub(crate) struct BoundConnector<C> {
    connector: C,
    runtime: Handle,
}

impl<C> Service<Uri> for BoundConnector<C>
where
    C: Service<Uri, Response: Send, Error: Into<Box<dyn Error + Send + Sync>> + Send, Future: Send + 'static> + 'static,
{
    type Response = C::Response;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        // A caller that no longer waits also ends the attempt.
        let connecting = AbortOnDropHandle::new(self.runtime.spawn(self.connector.call(target)));
        Box::pin(async move { connecting.await?.map_err(Into::into) })
    }
}
