#include "actors/supervisor/root.hpp"

#include <spdlog/spdlog.h>
#include <caf/all.hpp>

#include "actors/denial_aggregator/denial_aggregator.hpp"
#include "actors/endpoint_observer/endpoint_observer.hpp"
#include "actors/outbox/outbox.hpp"
#include "messages/status_error.hpp"

namespace openshell::supervisor {
namespace {

using Self = Root::stateful_pointer<RootState>;
using OptionsPtr = std::shared_ptr<const RootOptions>;

constexpr std::chrono::seconds kDenialFlush{2};
constexpr std::chrono::seconds kLogFlush{2};

Reporter reporter(const OptionsPtr& options, const char* name) {
  return options->directory ? Reporter{options->directory, name, name, "supervisor"} : Reporter{};
}

void tell_session(Self self, const OptionsPtr& options, const std::string& id) {
  auto& state = self->state;
  state.session_id = id;
  self->send(state.poller, accepted_atom::value, id);
  self->send(state.publisher, accepted_atom::value, id);
  self->send(state.endpoints, accepted_atom::value, id);
  options->session_changed(id);
}

/// `spawn` runs now and at each restart; it stores the handle.
template <class Spawn>
void add(Self self, const OptionsPtr& options, const char* name, OnDeath on_death, Spawn spawn) {
  self->state.children.add(self, name, RestartRule{on_death}, [options, name, spawn, first = true]() mutable {
    if (!std::exchange(first, false)) spdlog::warn("the actor {} is started again", name);
    auto handle = spawn();
    options->started(name, caf::actor_cast<caf::actor>(handle));
    return handle;
  });
}

/// Those whose work lies outside of them, in queues and transports.
void add_restartable(Self self, const OptionsPtr& options) {
  add(self, options, "log_push", OnDeath::restart, [self, options, first = options->log_push]() mutable {
    auto& actor = self->state.log_push;
    actor = std::exchange(first, nullptr);
    if (!actor) actor = self->spawn(log_push, options->logs, reporter(options, "log_push"));
    options->logs.queue->on_fill([handle = actor](bool urgent) { caf::anon_send(handle, wake_atom::value, urgent); });
    return actor;
  });
  if (options->journal_files) {
    add(self, options, "journal_writer", OnDeath::restart, [self, options] {
      auto& writer = self->state.writer;
      const auto report = reporter(options, "journal_writer");
      writer = options->publisher_has_own_thread ? self->spawn<caf::detached>(journal_writer, options->journal_files, report)
                                                 : self->spawn(journal_writer, options->journal_files, report);
      if (self->state.outbox) self->send(self->state.outbox, install_atom::value, writer);
      return writer;
    });
  }
  add(self, options, "status_outbox", OnDeath::restart, [self, options] {
    auto& outbox = self->state.outbox;
    outbox = self->spawn(status_outbox, options->journal, options->gateway, reporter(options, "status_outbox"));
    if (self->state.writer) self->send(outbox, install_atom::value, self->state.writer);
    return outbox;
  });
  add(self, options, "endpoint_observer", OnDeath::restart, [self, options] {
    auto& now = self->state;
    now.endpoints = self->spawn(endpoint_observer, options->endpoints, options->gateway, reporter(options, "endpoint_observer"));
    self->send(now.endpoints, publish_atom::value, now.installed);
    self->send(now.endpoints, accepted_atom::value, now.session_id);
    return now.endpoints;
  });
  add(self, options, "denial_aggregator", OnDeath::restart, [self, options] {
    auto& actor = self->state.aggregator;
    actor = self->spawn(denial_aggregator, options->denials, options->gateway, options->denial_interval,
                        reporter(options, "denial_aggregator"));
    options->denials->on_fill([handle = actor] { caf::anon_send(handle, wake_atom::value); });
    return actor;
  });
}

void add_session(Self self, const OptionsPtr& options) {
  auto connections = std::make_shared<std::uint64_t>(0);
  add(self, options, "session", OnDeath::restart, [self, options, connections] {
    auto& now = self->state;
    if (!now.session_id.empty()) tell_session(self, options, {});  // it went with the one that died
    auto given = options->session;
    given.gateway = options->gateway;
    given.connections = connections;
    const auto parent = caf::actor_cast<Root>(self);
    given.observers.changed = [parent](const std::string& id) { caf::anon_send(parent, accepted_atom::value, id); };
    given.observers.nudged = [parent](const std::string& update_id) { caf::anon_send(parent, nudge_atom::value, update_id); };
    now.session = self->spawn(session, std::move(given), reporter(options, "session"));
    self->send(now.session, start_atom::value);
    return now.session;
  });
}

/// Those without which the policy could no longer be followed or enforced.
void add_indispensable(Self self, const OptionsPtr& options) {
  if (options->directory) add(self, options, "directory", OnDeath::escalate, [options] { return options->directory; });
  add(self, options, "gateway_client", OnDeath::fail_closed, [options] { return options->gateway; });
  add(self, options, "boundary", OnDeath::fail_closed,
      [self, options] { return self->state.boundary = self->spawn(boundary_actor, options->boundary, reporter(options, "boundary")); });
  // The publisher enqueues the initial acknowledgement first of all; only then is there a poller.
  add(self, options, "runtime_publisher", OnDeath::fail_closed, [self, options] {
    const auto start = [&](auto spawn) {
      return spawn(options->gateway, options->journal, self->state.boundary, InstalledSink{caf::actor_cast<Root>(self)}, options->publisher,
                   reporter(options, "runtime_publisher"));
    };
    auto& publisher = self->state.publisher;
    if (options->publisher_has_own_thread) {
      publisher = start([self](auto... args) { return self->spawn<caf::detached>(runtime_publisher, std::move(args)...); });
    } else {
      publisher = start([self](auto... args) { return self->spawn(runtime_publisher, std::move(args)...); });
    }
    return publisher;
  });
  add(self, options, "policy_poller", OnDeath::fail_closed, [self, options] {
    return self->state.poller = self->spawn(policy_poller, options->gateway, self->state.publisher,
                                            AppliedSink{caf::actor_cast<Root>(self)}, options->poller, reporter(options, "policy_poller"));
  });
}

ActorSnapshot snapshot(const RootState& state) {
  ActorSnapshot out;
  std::uint64_t restarts = 0;
  for (const char* name : {"log_push", "journal_writer", "status_outbox", "endpoint_observer", "denial_aggregator", "session"})
    restarts += state.children.restarts(name);
  out.summary = std::to_string(restarts) + " restarts" + (state.closing ? ", closing" : "");
  return out;
}

}  // namespace

Root::behavior_type root(Self self, std::shared_ptr<const RootOptions> options) {
  self->state.reporter = reporter(options, "root");
  self->state.children.watch<revive_atom>(self, [self, options](const std::string& name, OnDeath action, const caf::error& reason) {
    if (self->state.closing) return;
    spdlog::error("the actor {} died: {}", name, self->system().render(reason));
    options->escalate(name, action);
  });
  add_restartable(self, options);
  add_indispensable(self, options);
  add_session(self, options);  // last: whoever hears of a session is there
  Root::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete(snapshot(self->state)); },
      [=](accepted_atom, const std::string& id) { tell_session(self, options, id); },
      [=](nudge_atom, const std::string& update_id) { self->send(self->state.poller, nudge_atom::value, update_id); },
      [=](applied_atom, const std::vector<std::string>& update_ids) { self->send(self->state.session, applied_atom::value, update_ids); },
      [=](publish_atom, const Installed& installed) {
        self->state.installed = installed;
        self->send(self->state.endpoints, publish_atom::value, installed);
      },
      [=](link_atom, LinkState link) {
        self->send(self->state.boundary, link_atom::value, link);
        if (self->state.closing) return;
        // A sandbox that can not be reached is not ready, whatever its supervisor could still tell: the gateway sees it by the session.
        if (link == LinkState::connected) {
          self->send(self->state.session, start_atom::value);
        } else {
          self->send(self->state.session, stop_atom::value);
          if (!self->state.session_id.empty()) tell_session(self, options, {});
        }
      },
      [=](revive_atom, const std::string& name) {
        if (self->state.closing) return;
        self->state.children.revive(self, name);
        self->state.reporter.touch(self, [self] { return snapshot(self->state); });
      },
      [=](close_atom) {
        self->state.closing = true;
        self->send(self->state.session, stop_atom::value);
      },
      [=](stop_atom) { return self->delegate(self->state.boundary, stop_atom::value); },
      [=](flush_atom) {
        auto promise = self->make_response_promise<void>();
        const auto logs = [=] {
          self->request(self->state.log_push, kLogFlush, stop_atom::value)
              .then([promise] { deliver(promise, absl::OkStatus()); },
                    [promise](const caf::error& error) { deliver(promise, to_status(error)); });
        };
        // A failure to submit the denials is no reason to keep the lines.
        self->request(self->state.aggregator, kDenialFlush, stop_atom::value).then(logs, [logs](const caf::error&) { logs(); });
        return promise;
      },
  };
  return self->state.reporter.watch(
      self, [self] { return snapshot(self->state); }, std::move(handlers));
}

}  // namespace openshell::supervisor
