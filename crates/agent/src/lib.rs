//! muster-agent: the node's shell
