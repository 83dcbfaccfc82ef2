//! [`Connect`]: how every verb finds the control plane that it calls.

use std::path::PathBuf;

use clap::Args;
use server::Credentials;

use crate::credentials::{self, CredentialsError, OPERATOR_ENV};
use crate::failure::Failure;
use crate::next_step;
use crate::operator::Operator;

/// How the control plane is reached.
#[derive(Args, Clone, Debug)]
pub struct Connect {
    /// The operator's credentials, as `muster server` wrote them [default: operator.json in
    /// ./muster-data, else in /var/lib/muster-server]
    #[arg(long, value_name = "FILE", env = OPERATOR_ENV, global = true)]
    pub operator: Option<PathBuf>,
}

impl Connect {
    /// Dials with the credentials that are meant.
    ///
    /// # Errors
    /// When there are none, or the control plane does not answer.
    pub async fn dial(&self) -> Result<Operator, Failure> {
        let (_, credentials) = self.credentials()?;
        Ok(Operator::dial(&credentials).await?)
    }

    /// Reads the credentials that are meant, and has the next steps name them; gives their path too.
    ///
    /// # Errors
    /// When there are none, or they cannot be read.
    pub fn credentials(&self) -> Result<(PathBuf, Credentials), CredentialsError> {
        next_step::remember(self.operator.as_deref());
        credentials::operator(self.operator.as_deref())
    }
}
