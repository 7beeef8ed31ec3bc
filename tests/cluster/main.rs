//! The product on a real control plane: real API server, etcd and controllers.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed expectation of a test is a panic"
)]

mod absence;
mod admin;
mod adoption;
mod backup;
mod bad_input;
mod cache_bounds;
mod callers;
mod compiled;
mod conditions;
mod conflicts;
mod control_plane;
mod crash;
mod definitions;
mod delays;
mod dev;
mod distortions;
mod etcd;
mod examples;
mod faults;
mod field_managers;
mod finalize;
mod fleet_plan;
mod health;
mod hogs;
mod hostile_descriptions;
mod install;
mod large_answers;
mod lease;
mod memcached;
mod mirrored;
mod misbehaving;
mod monitoring;
mod moody;
mod namespaces;
mod overload;
mod ownership;
mod pages;
mod parent_conditions;
mod plan;
mod plugin_cache;
mod plugin_crash_loops;
mod plugin_crashes;
mod plugin_crowd;
mod plugin_definition;
mod plugin_gone;
mod plugin_grants;
mod plugin_history;
mod plugin_leaving;
mod plugin_loading;
mod plugin_priority;
mod plugin_resource;
mod plugins;
mod quickstart;
mod recordings;
mod refusals;
mod refused_writes;
mod registries;
mod relay;
mod render;
mod rollouts;
mod selections;
mod sharing;
mod shutdown;
mod spinning;
mod stage;
mod status;
mod steady;
mod suite;
mod swaps;
mod takeover;
mod tenants;
mod traces;
mod tunnel;
mod tutorial;
mod undone;
mod unreadable;
mod verdicts;
mod watches;
mod web;
mod wordpress;
