//! Nodes, edges and rules of users: their API and commands.
