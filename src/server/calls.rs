//! Routes, each with what is said of it: one that nobody describes cannot be added.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{self, MethodRouter};

use super::call::{ANY, Call, Fault, GUARDED, NAMED};
use super::{Server, access};

/// Under which paths stand, and as what Feldera's clients know them.
const VERSION: &str = "/v1/";
const TWIN: &str = "/v0/";

/// All that there is to call.
#[derive(Default)]
pub(super) struct Calls(Vec<Route>);

/// A call, and where it is.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: String,
    /// Where it is too.
    pub(super) aliases: Vec<String>,
    pub(super) call: &'static Call,
    handler: MethodRouter<Arc<Server>>,
}

impl Calls {
    pub(super) fn get<H: Handler<T, Arc<Server>>, T: 'static>(
        self,
        path: &str,
        handler: H,
        call: &'static Call,
    ) -> Self {
        self.add(Method::GET, path, routing::get(handler), call)
    }

    pub(super) fn post<H: Handler<T, Arc<Server>>, T: 'static>(
        self,
        path: &str,
        handler: H,
        call: &'static Call,
    ) -> Self {
        self.add(Method::POST, path, routing::post(handler), call)
    }

    pub(super) fn put<H: Handler<T, Arc<Server>>, T: 'static>(
        self,
        path: &str,
        handler: H,
        call: &'static Call,
    ) -> Self {
        self.add(Method::PUT, path, routing::put(handler), call)
    }

    pub(super) fn delete<H: Handler<T, Arc<Server>>, T: 'static>(
        self,
        path: &str,
        handler: H,
        call: &'static Call,
    ) -> Self {
        self.add(Method::DELETE, path, routing::delete(handler), call)
    }

    fn add(mut self, method: Method, path: &str, handler: MethodRouter<Arc<Server>>, call: &'static Call) -> Self {
        let handler = match call.role {
            Some(role) => handler.route_layer(from_fn_with_state(role, access::need)),
            None => handler,
        };
        let aliases = path.strip_prefix(VERSION).map(|rest| format!("{TWIN}{rest}")).into_iter().collect();
        self.0.push(Route { method, path: path.to_owned(), aliases, call, handler });
        self
    }

    /// The call that was added last is at `path` too.
    pub(super) fn also(mut self, path: &str) -> Self {
        if let Some(route) = self.0.last_mut() {
            let twin = path.strip_prefix(VERSION).map(|rest| format!("{TWIN}{rest}"));
            route.aliases.extend([path.to_owned()].into_iter().chain(twin));
        }
        self
    }

    pub(super) fn routes(&self) -> &[Route] {
        &self.0
    }

    pub(super) fn router(self) -> Router<Arc<Server>> {
        self.0.into_iter().fold(Router::new(), |router, route| {
            let paths = route.aliases.iter().chain([&route.path]);
            paths.fold(router, |router, path| router.route(path, route.handler.clone()))
        })
    }
}

impl Route {
    /// The names in the path that stand for something.
    pub(super) fn placeholders(&self) -> impl Iterator<Item = &str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    /// Every problem that it may answer, those of one status beside each other, each code of a status once.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let named = self.placeholders().next().map_or(&[][..], |_| NAMED);
        let guarded = self.call.role.map_or(&[][..], |_| GUARDED);
        let mut faults: Vec<Fault> =
            self.call.faults.iter().copied().chain([ANY, guarded, named]).flatten().copied().collect();
        faults.sort_by_key(|fault| (fault.status, fault.code));
        faults.dedup_by_key(|fault| (fault.status, fault.code));
        faults
    }
}
