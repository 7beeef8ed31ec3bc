mod availability;
mod cached_texts;
mod harness;
mod limited;
mod observation;
mod own_writes;
mod reads;
mod registrations;
mod shards;
mod watch_events;

use innkeeper_model::{Access, ReadFailure, ReadScope, ResourceVersion};
use serde_json::{Value, json};

use self::harness::*;
use super::*;
use crate::{interest::Why, machine::Since, section::Section, store::CacheSize};
