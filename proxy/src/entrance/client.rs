//! Who is asking, once the kernel has said it: a run, or an agent known by its uid. The policy is
//! looked up for each request, so that a reload judges the next request of a connection that is
//! already open.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use policy::grant::{Grant, Limit, TokenDigest};
use policy::record::{Entrance, Record, RecordKind};
use policy::{Code, Refusal};
use tokio::sync::watch;

use crate::allowance::escaped;
use crate::gate::Gate;
use crate::policies::LoadedPolicy;
use crate::runs::Run;

/// An identified client, one per connection.
#[allow(
    missing_debug_implementations,
    reason = "leads to a run's token, which is never printed"
)]
pub struct Client {
    grant: Grant,
    entrance: Entrance,
    peer_uid: Option<u32>,
    owner: Arc<str>,
    run: Option<Arc<Run>>,
    token: Option<TokenDigest>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A process of a run, which came in by the run's own socket.
    pub fn of_run(run: Arc<Run>, peer_uid: u32) -> Self {
        run.connections.fetch_add(1, Ordering::Relaxed);
        Self {
            grant: run.grant.clone(),
            entrance: Entrance::RunSocket,
            peer_uid: Some(peer_uid),
            owner: owner_of(&run),
            run: Some(run),
            token: None,
        }
    }

    /// A client that showed the token of a run.
    pub fn of_token(run: Arc<Run>, token: TokenDigest) -> Self {
        run.connections.fetch_add(1, Ordering::Relaxed);
        Self {
            grant: run.grant.clone(),
            entrance: Entrance::Token,
            peer_uid: None,
            owner: owner_of(&run),
            run: Some(run),
            token: Some(token),
        }
    }

    /// A client that showed a token which the configuration knows.
    pub fn of_known_token(grant: Grant, token: TokenDigest) -> Self {
        Self {
            entrance: Entrance::Token,
            peer_uid: None,
            owner: format!("token:{token}").into(),
            run: None,
            token: Some(token),
            grant,
        }
    }

    /// Whoever is at an address that the configuration knows.
    pub fn of_place(grant: Grant, address: IpAddr) -> Self {
        Self {
            entrance: Entrance::Address,
            peer_uid: None,
            owner: format!("address:{address}").into(),
            run: None,
            token: None,
            grant,
        }
    }

    /// A process that the configuration knows by its uid.
    pub fn of_uid(grant: Grant, peer_uid: u32) -> Self {
        Self::known(grant, peer_uid, Entrance::Uid)
    }

    /// The same process, led here by the boundary.
    pub fn of_redirected(grant: Grant, peer_uid: u32) -> Self {
        Self::known(grant, peer_uid, Entrance::Redirected)
    }

    /// The same process, asking for a name.
    pub fn of_resolver(grant: Grant, peer_uid: u32) -> Self {
        Self::known(grant, peer_uid, Entrance::Resolver)
    }

    fn known(grant: Grant, peer_uid: u32, entrance: Entrance) -> Self {
        Self {
            grant,
            entrance,
            peer_uid: Some(peer_uid),
            owner: format!("uid:{peer_uid}").into(),
            run: None,
            token: None,
        }
    }

    /// What the token digests to that each of its requests must show, if that is who it is.
    pub fn token(&self) -> Option<&TokenDigest> {
        self.token.as_ref()
    }

    /// Connections, kept and counted, belong to this; two runs never share one.
    pub fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    /// The run, if it is one.
    pub fn run(&self) -> Option<&Arc<Run>> {
        self.run.as_ref()
    }

    /// Whose it is.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// What its grant bounds, at this moment: whoever opened the run may say so anew.
    pub fn granted(&self) -> Vec<Limit> {
        match &self.run {
            Some(run) => run.allowance(),
            None => self.grant.allowance.clone(),
        }
    }

    /// For whom rates are counted.
    pub fn asker(&self) -> String {
        let (company, agent) = (escaped(&self.grant.company), escaped(&self.grant.agent));
        format!("{company}/{agent}")
    }

    /// The policy in force for this client at this moment.
    pub fn policy(&self, gate: &Gate) -> Result<Arc<LoadedPolicy>, Refusal> {
        if let Some(run) = &self.run {
            if run.is_closed() {
                return Err(Refusal::new(
                    Code::RunEnded,
                    "this run has ended",
                    "nothing of an ended run may leave",
                ));
            }
            return Ok(run.policy());
        }
        gate.policies.get(&self.grant.profile).ok_or_else(|| {
            Refusal::new(
                Code::PolicyInvalid,
                "there is no policy in force for this agent",
                "the operator must repair the profile's policy file",
            )
        })
    }

    /// Tells when the policy in force for this client changes.
    pub fn policy_changes(&self, gate: &Gate) -> Option<watch::Receiver<Arc<LoadedPolicy>>> {
        match &self.run {
            Some(run) => Some(run.policy_changes()),
            None => gate.policies.watch(&self.grant.profile),
        }
    }

    /// Ends when everything of this client must be cut.
    pub async fn closed(&self) {
        match &self.run {
            Some(run) => ended(run).await,
            None => std::future::pending().await,
        }
    }

    /// A line about this client.
    pub fn record(&self, kind: RecordKind, id: &str) -> Record {
        let mut record = Record::new(kind, id, &crate::audit::now()).of(&self.grant);
        record.entrance = Some(self.entrance);
        record.peer_uid = self.peer_uid;
        record
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(run) = &self.run {
            run.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What connections of this epoch of a run belong to.
pub fn owner_of(run: &Run) -> Arc<str> {
    format!("run:{}:{}", run.grant.run, run.epoch).into()
}

/// Ends when the run does, however it ends.
pub async fn ended(run: &Run) {
    let mut closed = run.closed();
    // A sender that went away has ended the run too.
    let _ = closed.wait_for(|closed| *closed).await;
}
