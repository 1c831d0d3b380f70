//! Agents and analyzers as processes of their own: the graph, flows and captures between them.
//!
//! | module | end | what it does |
//! |---|---|---|
//! | `protocol` | both | the messages |
//! | `uplink` | agent | keeps a connection with an analyzer, tells it of graph and flows |
//! | `wire` | agent | gets to the analyzer, by TCP or TLS |
//! | `outbox` | agent | flows that wait to be sent or confirmed |
//! | `wanted` | agent | captures that the analyzer wants |
//! | `signing` | both | the signatures of those |
//! | `server` | analyzer | `/ws/agent` and `/api/agents` |
//! | `fleet` | analyzer | who the agents are, what they are to capture |
//! | `session` | analyzer | takes what an agent tells of its graph |
//! | `remote` | analyzer | flows of agents, as queries see them |
//! | `everywhere` | analyzer | runs captures here and at agents |
//! | `command` | both | `skua agents` |

pub mod command;
pub mod everywhere;
pub mod fleet;
mod outbox;
mod parties;
pub mod protocol;
mod remote;
pub mod server;
mod session;
pub mod signing;
#[cfg(test)]
mod tests;
pub mod uplink;
mod wanted;
pub mod wire;
