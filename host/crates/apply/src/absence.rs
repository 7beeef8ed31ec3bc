//! An apply that also takes away the fields that a child states as absent.
//!
//! Almost every update has none. The others first hand the fields that are there to the manager of the children, because
//! an apply takes away only fields that no other manager owns.

use innkeeper_model::{Object, ResourceVersion, Uid};
use innkeeper_plan::absence::{self, Owners};
use serde_json::{Map, Value};

use super::{Error, ErrorKind, Session, Writer, Written, request::Address};

/// An update of a child that states fields as absent.
pub(super) struct Absences<'a> {
    address: Address<'a>,
    manager: &'a str,
    account: Option<&'a str>,
    body: &'a Map<String, Value>,
    uid: &'a Uid,
    version: ResourceVersion,
    /// The child as it is, with the managed fields of all managers.
    live: &'a Object,
}

impl<'a> Absences<'a> {
    pub(super) const fn new(
        address: Address<'a>,
        session: &'a Session<'_>,
        body: &'a Map<String, Value>,
        (uid, version): (&'a Uid, ResourceVersion),
        live: &'a Object,
    ) -> Self {
        Self {
            address,
            manager: session.manager,
            account: session.account,
            body,
            uid,
            version,
            live,
        }
    }
}

impl Writer {
    /// Takes the fields away and applies the rest.
    pub(super) async fn update_with_absences(
        &self,
        update: &Absences<'_>,
    ) -> Result<Written, Error> {
        let stated = absence::absences(update.body);
        let (live, mut version) = (update.live, update.version);
        // Otherwise the plan is outdated: the apply below is refused, and the next pass plans anew.
        if version == live.resource_version {
            let present = absence::present(&live.json, &stated);
            let owners = Owners::from_object(live);
            let handed = self.take_over(update, owners, &present, false).await?;
            version = handed.map_or(version, |handed| handed.resource_version);
        }
        let body = absence::without_absences(update.body, Some(&live.json), &[]);
        let written = self.apply_part(update, &body, version).await?;
        let refilled = absence::present(&written.json, &stated);
        if refilled.is_empty() {
            return Ok(written);
        }
        self.take_defaults_away(update, written, &refilled).await
    }

    /// Makes null of fields that the API server has filled in again, where their kind allows that. The others can never be
    /// absent: owned, they count as stated.
    async fn take_defaults_away(
        &self,
        update: &Absences<'_>,
        written: Written,
        refilled: &[absence::Path],
    ) -> Result<Written, Error> {
        // An apply leaves maps and lists as they are.
        let composite = absence::composite(&written.json, refilled);
        let owners = Owners::from_json(&written.json);
        let known = match self.take_over(update, owners, &composite, true).await {
            Ok(Some(nulled)) => nulled,
            Err(error) if error.kind != ErrorKind::Rejected => return Err(error),
            Ok(None) | Err(_) => written,
        };
        let body = absence::without_absences(update.body, Some(&known.json), refilled);
        let version = known.resource_version;
        match self.apply_part(update, &body, version).await {
            Err(error) if error.kind == ErrorKind::Rejected => Ok(known),
            applied => applied,
        }
    }

    /// Makes the manager the only owner of fields; none if there are none.
    async fn take_over(
        &self,
        update: &Absences<'_>,
        owners: Option<Owners>,
        fields: &[absence::Path],
        as_null: bool,
    ) -> Result<Option<Written>, Error> {
        let patch = owners
            .filter(|_| !fields.is_empty())
            .and_then(|owners| owners.take_over(update.manager, fields, as_null));
        let Some(patch) = patch else { return Ok(None) };
        let verb = "take fields away from";
        let request = update.address.json_patch(verb, update.manager, &patch);
        let written = self.exchange(request.act_as(update.account)).await;
        written.map(Some)
    }

    async fn apply_part(
        &self,
        update: &Absences<'_>,
        body: &Map<String, Value>,
        version: ResourceVersion,
    ) -> Result<Written, Error> {
        let request = update
            .address
            .update(update.manager, body, update.uid, version);
        self.exchange(request.act_as(update.account)).await
    }
}
