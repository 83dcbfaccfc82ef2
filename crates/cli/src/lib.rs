//! muster: operators' verbs, muster server and muster demo
