//! Requests of the protocol, and what is told without being asked.

#![expect(deprecated, reason = "logging, roots and subscriptions as revisions before 2026-07-28 have them")]

use crate::core::{Core, locked};
use crate::resources;
use crate::roots::Taken;
use crate::tools::{Name, schema};
use pinfold_policy::quote::quote;
use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::{Peer, RoleServer, ServerHandler};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// So many calls are made at once over all connections; further ones are refused.
const MOST_CALLS: usize = 256;
/// The key of the roots in an answer that asks to be called again.
const ROOTS: &str = "roots";
/// How long a client has to name its roots.
const ROOTS_WITHIN: Duration = Duration::from_secs(30);

/// What concerns one connection alone.
#[derive(Default)]
pub(crate) struct Connection {
    /// The client, once it has opened a conversation in which it can be told something at any time.
    peer: OnceLock<Peer<RoleServer>>,
    level: Mutex<Option<LoggingLevel>>,
    subscribed: Mutex<BTreeSet<String>>,
    sinks: Mutex<Vec<SubscriptionSink>>,
    runtime: OnceLock<tokio::runtime::Handle>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Order of severity.
fn rank(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}

impl Connection {
    /// Says something that belongs to no request; from any thread.
    pub(crate) fn say_later(self: &Arc<Self>, text: &str) {
        let (connection, text) = (Arc::clone(self), text.to_owned());
        if let Some(runtime) = self.runtime.get() {
            runtime.spawn(async move { connection.say(LoggingLevel::Info, &text).await });
        }
    }

    async fn say(&self, level: LoggingLevel, text: &str) {
        let least = locked(&self.level).unwrap_or(LoggingLevel::Info);
        let Some(peer) = self.peer.get().filter(|_| rank(level) >= rank(least)) else { return };
        let message = LoggingMessageNotificationParam::new(level, json!(text)).with_logger("pinfold");
        // A client that has gone needs no word of it.
        let _ = peer.notify_logging_message(message).await;
    }

    /// Tells that the policy has changed, and with `tools` that the tools have.
    pub(crate) async fn policy_changed(&self, tools: bool) {
        let subscribed = locked(&self.subscribed).contains(resources::POLICY);
        if let Some(peer) = self.peer.get() {
            if tools {
                let _ = peer.notify_tool_list_changed().await; // as above
            }
            if subscribed {
                let _ = peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(resources::POLICY)).await;
            }
        }
        let sinks = locked(&self.sinks).clone();
        for sink in sinks {
            // A sink refuses what its client has not asked for.
            if tools {
                let _ = sink.notify_tool_list_changed().await;
            }
            let _ = sink.notify_resource_updated(resources::POLICY).await;
        }
    }
}

/// One connection to a session.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    core: Arc<Core>,
    connection: Arc<Connection>,
    calls: Arc<Semaphore>,
    ending: CancellationToken,
    instructions: Arc<str>,
}

/// Makes connections to one session.
#[derive(Debug, Clone)]
pub(crate) struct Servers {
    core: Arc<Core>,
    calls: Arc<Semaphore>,
    ending: CancellationToken,
    instructions: Arc<str>,
}

impl Servers {
    /// `instructions` is what a model is told of the policy when a conversation opens.
    pub(crate) fn new(core: Arc<Core>, ending: CancellationToken, instructions: String) -> Self {
        Self { core, calls: Arc::new(Semaphore::new(MOST_CALLS)), ending, instructions: instructions.into() }
    }

    pub(crate) fn connect(&self) -> Server {
        let connection = Arc::new(Connection::default());
        {
            // Over HTTP a request may be a connection: those that have gone are not remembered.
            let mut connections = locked(&self.core.connections);
            connections.retain(|it| it.strong_count() > 0);
            connections.push(Arc::downgrade(&connection));
        }
        Server {
            core: Arc::clone(&self.core),
            connection,
            calls: Arc::clone(&self.calls),
            ending: self.ending.clone(),
            instructions: Arc::clone(&self.instructions),
        }
    }
}

impl Server {
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn ending(&self) -> &CancellationToken {
        &self.ending
    }

    /// Asks a client for its roots by a request of ours.
    async fn ask_for_roots(&self, peer: Peer<RoleServer>) {
        let capable = peer.peer_info().is_some_and(|info| info.capabilities.roots.is_some());
        if !capable || self.core.settings.roots_below.is_empty() {
            return;
        }
        let asked = tokio::time::timeout(ROOTS_WITHIN, peer.list_roots()).await;
        if let Ok(Ok(listed)) = asked {
            self.take_roots(listed).await;
        }
    }

    async fn take_roots(&self, listed: ListRootsResult) {
        let addresses: Vec<_> = listed.roots.into_iter().map(|root| root.uri).collect();
        let core = Arc::clone(&self.core);
        let taken = tokio::task::spawn_blocking(move || {
            let taken = core.roots.take(&addresses, &core.settings.roots_below, &*core.ground);
            if taken.changed {
                // What runs keeps what it began with; the shell that stays would keep it for ever.
                core.executor.end_shell(core.session.id());
            }
            taken
        });
        let Ok(Taken { changed, accepted, refused }) = taken.await else { return };
        for why in &refused {
            self.connection.say(LoggingLevel::Warning, why).await;
        }
        if changed {
            let names: Vec<_> = accepted.iter().map(quote).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            self.connection.say(LoggingLevel::Notice, &format!("roots of the client: {names}")).await;
            for connection in self.core.connections() {
                connection.policy_changed(false).await;
            }
        }
    }

    fn mode_error(error: &pinfold_session::SessionError) -> ErrorData {
        ErrorData::internal_error(format!("{}: {error}", error.code()), None)
    }
}

/// Where the protocol has no requests of ours, roots are asked for by the answer to the first call. Returns that answer, or
/// takes what came back.
pub(crate) async fn roots_wanted(
    server: &Server,
    params: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Option<InputRequiredResult> {
    let again = context.protocol_version().is_some_and(|version| crate::ask::calls_again(&version));
    let core = server.core();
    if !again || core.settings.roots_below.is_empty() || core.roots.is_known() {
        return None;
    }
    context.client_capabilities()?.roots?;
    if let Some(given) = params.input_responses.as_ref().and_then(|given| given.get(ROOTS)) {
        // What is no list of roots names none.
        let listed = serde_json::from_value(given.clone()).unwrap_or_else(|_| ListRootsResult::new(Vec::new()));
        server.take_roots(listed).await;
        return None;
    }
    let request = InputRequest::ListRoots(ListRootsRequest::default());
    Some(InputRequiredResult::from_input_requests(InputRequests::from([(ROOTS.to_owned(), request)])))
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .build();
        let implementation = Implementation::new("pinfold", env!("CARGO_PKG_VERSION"))
            .with_title("Pinfold")
            .with_description("A shell and file tools under a file policy, with a truthful report");
        ServerConfig::new(capabilities).with_server_info(implementation).with_instructions(&*self.instructions)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // Only the first one opens a conversation.
        let _ = self.connection.peer.set(context.peer.clone());
        let _ = self.connection.runtime.set(tokio::runtime::Handle::current());
        self.ask_for_roots(context.peer).await;
    }

    async fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) {
        self.ask_for_roots(context.peer).await;
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        *locked(&self.connection.level) = Some(request.level);
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mode = self.core.mode().map_err(|error| Self::mode_error(&error))?;
        Ok(ListToolsResult::with_all_items(schema::tools(mode, &self.core.settings)))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let mode = self.core.mode().ok()?;
        Name::of(name).map(|name| schema::tool(name, mode, &self.core.settings))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(name) = Name::of(&params.name) else {
            let shown: String = params.name.chars().take(100).collect();
            return Err(ErrorData::invalid_params(format!("unknown tool {}", quote(shown)), None));
        };
        let Ok(_call) = self.calls.try_acquire() else {
            let text = format!("{MOST_CALLS} calls are being made, which is the limit: try again");
            let refusal = crate::tools::reply::Refusal::new("TOO_MANY_CALLS", text);
            return Ok(refusal.into_result().into());
        };
        crate::call::call(self, name, params, context).await
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (core, address) = (Arc::clone(&self.core), request.uri.clone());
        let read = tokio::task::spawn_blocking(move || resources::read(&core, &address));
        let read = read.await.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        match read {
            Some(Ok(contents)) => Ok(ReadResourceResult::new(vec![contents]).into()),
            Some(Err(refusal)) => Err(ErrorData::internal_error(refusal.text().to_owned(), None)),
            None => {
                let shown: String = request.uri.chars().take(200).collect();
                Err(ErrorData::resource_not_found(format!("there is no resource {}", quote(shown)), None))
            }
        }
    }

    async fn subscribe(&self, request: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        if !resources::list().iter().any(|known| known.uri == request.uri) {
            return Err(ErrorData::resource_not_found("there is no such resource", None));
        }
        locked(&self.connection.subscribed).insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        locked(&self.connection.subscribed).remove(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = requested.clone();
        if let Some(addresses) = &mut accepted.resource_subscriptions {
            addresses.retain(|address| resources::list().iter().any(|known| known.uri == *address));
        }
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let id = context.sink().id().clone();
        locked(&self.connection.sinks).push(context.sink().clone());
        tokio::select! {
            () = context.cancelled() => {}
            () = self.ending.cancelled() => {}
        }
        locked(&self.connection.sinks).retain(|sink| *sink.id() != id);
        Ok(())
    }
}
