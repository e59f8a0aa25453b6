#include "actors/gateway/sandbox_bus.hpp"

#include <caf/all.hpp>

#include <algorithm>

#include "observability/text.hpp"

namespace openshell::gateway {
namespace {

namespace pb = openshell::v1;
using Self = SandboxBusView::stateful_pointer<SandboxBusState>;
using Watcher = SandboxBusState::Watcher;
using Channel = SandboxBusState::Channel;

Channel& channel(Self self, const std::string& id) {
  auto& channels = self->state.channels;
  const auto it = channels.find(id);
  if (it != channels.end()) return it->second;
  return channels.emplace(id, Channel{EventLog{self->state.epoch}, {}, nullptr}).first->second;
}

bool wants(const Watcher& watcher, const pb::SandboxStreamEvent& event) {
  if (event.has_log()) return watcher.request->follow_logs() && watcher.filter.passes(event.log());
  return event.has_event() && watcher.request->follow_events();
}

/// What was lost is told before the next event that fits.
void push(Watcher& watcher, const pb::SandboxStreamEvent& event) {
  if (watcher.lost > 0) {
    pb::SandboxStreamEvent warning;
    warning.mutable_warning()->set_message(cat("this client is slow: ", watcher.lost, " events of the sandbox bus were not sent to it"));
    if (!watcher.sink->push(warning)) {
      ++watcher.lost;
      return;
    }
    watcher.lost = 0;
  }
  if (!watcher.sink->push(event)) ++watcher.lost;
}

void publish(Channel& to, const pb::SandboxStreamEvent& event) {
  to.watchers.remove_if([](const Watcher& watcher) { return watcher.sink->closed(); });
  for (auto& watcher : to.watchers) {
    if (wants(watcher, event)) push(watcher, event);
  }
}

void show(Watcher& watcher, const pb::Sandbox& sandbox) {
  pb::SandboxStreamEvent event;
  *event.mutable_sandbox() = sandbox;
  push(watcher, event);
}

LineFilter filter_of(const pb::WatchSandboxRequest& request) {
  LineFilter filter;
  if (request.has_since_time()) filter.since = to_millis(request.since_time());
  filter.sources.assign(request.log_sources().begin(), request.log_sources().end());
  filter.min_level = request.log_min_level();
  return filter;
}

Outcome subscribe(Self self, const Ask<pb::WatchSandboxRequest>& ask, const std::string& id, const std::shared_ptr<WatchSink>& sink) {
  const auto& request = *ask.request;
  auto& state = self->state;
  const auto it = state.channels.find(id);
  if (it == state.channels.end() || !it->second.shown) return {absl::NotFoundError("sandbox not found")};
  auto& here = it->second;
  Watcher watcher{sink, ask.request, filter_of(request), 0};
  const auto wanted = [&](const pb::SandboxStreamEvent& event) { return wants(watcher, event); };
  std::vector<pb::SandboxStreamEvent> replay;
  if (!request.resume_after_cursor().empty()) {
    auto missed = here.log.after(request.resume_after_cursor(), wanted);
    if (!missed.ok()) return {missed.status()};
    replay = std::move(*missed);
  } else {
    const auto lines = request.follow_logs() ? (request.log_tail_lines() == 0 ? kDefaultLogTail : request.log_tail_lines()) : 0;
    auto logs = here.log.tail(lines, [&](const auto& event) { return event.has_log() && wanted(event); });
    auto events = here.log.tail(request.event_tail(), [&](const auto& event) { return event.has_event() && wanted(event); });
    std::merge(logs.begin(), logs.end(), events.begin(), events.end(), std::back_inserter(replay),
               [](const auto& a, const auto& b) { return a.cursor() < b.cursor(); });
  }
  show(watcher, *here.shown);
  for (const auto& event : replay) push(watcher, event);
  if (request.stop_on_terminal() && is_terminal(*here.shown)) {
    sink->close(absl::OkStatus());
    return {};
  }
  here.watchers.push_back(std::move(watcher));
  return {};
}

pb::GetSandboxLogsResponse logs(const EventLog* log, const pb::GetSandboxLogsRequest& request) {
  pb::GetSandboxLogsResponse response;
  if (log == nullptr) return response;
  LineFilter filter;
  if (request.has_since_time()) filter.since = to_millis(request.since_time());
  filter.sources.assign(request.sources().begin(), request.sources().end());
  filter.min_level = request.min_level();
  const std::size_t lines = request.lines() == 0 ? kMaxEvents : request.lines();
  for (auto& event : log->tail(lines, [&](const auto& candidate) { return candidate.has_log() && filter.passes(candidate.log()); })) {
    *response.add_logs() = std::move(*event.mutable_log());
  }
  response.set_buffer_total(static_cast<std::uint32_t>(log->all().size()));
  return response;
}

void touch(Self self) {
  self->state.reporter.touch(self, [self] { return self->state.snapshot(); });
}

}  // namespace

bool is_terminal(const pb::Sandbox& sandbox) {
  const auto phase = sandbox.status().phase();
  return phase == pb::SANDBOX_PHASE_READY || phase == pb::SANDBOX_PHASE_COMPLETED || phase == pb::SANDBOX_PHASE_STOPPED ||
         phase == pb::SANDBOX_PHASE_ERROR;
}

ActorSnapshot SandboxBusState::snapshot() const {
  ActorSnapshot out;
  std::size_t watchers = 0;
  std::size_t events = 0;
  for (const auto& [id, channel] : channels) {
    watchers += channel.watchers.size();
    events += channel.log.all().size();
  }
  out.summary = cat(watchers, " watchers, ", events, " events kept");
  return reporter.complete(out);
}

SandboxBusView::behavior_type sandbox_bus(Self self, Directory directory, Millis epoch) {
  self->state.epoch = epoch;
  self->state.reporter = Reporter{std::move(directory), "sandbox_bus", "sandbox_bus", "gateway_root"};
  SandboxBusView::behavior_type handlers{
      [=](introspect_atom) { return self->state.snapshot(); },
      [=](const Ask<pb::PushSandboxLogsRequest>& ask) {
        const auto& batch = *ask.request;
        if (!self->state.channels.contains(batch.sandbox_id())) return;  // deleted meanwhile
        auto& to = channel(self, batch.sandbox_id());
        for (int i = 0; i < batch.logs_size() && i < kMaxLinesPerBatch; ++i) {
          auto line = clean_line(batch.logs(i), batch.sandbox_id());
          self->state.denials.add(line);
          publish(to, to.log.add(std::move(line)));
        }
        self->state.reporter.note_handled();
        touch(self);
      },
      [=](add_atom, const std::string& id, const std::string& level, const std::string& text) {
        if (!self->state.channels.contains(id)) return;
        pb::SandboxLogLine line;
        line.set_sandbox_id(id);
        line.set_source("gateway");
        line.set_level(level);
        line.set_message(text);
        set_millis(line.mutable_event_time(),
                   std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count());
        auto& to = channel(self, id);
        publish(to, to.log.add(std::move(line)));
      },
      [=](find_atom, const std::string& denial_id) {
        self->state.reporter.disregard();
        return self->state.denials.find(denial_id);
      },
      [=](const Ask<pb::GetSandboxLogsRequest>& ask, const std::string& id) -> Reply<pb::GetSandboxLogsResponse> {
        const auto it = self->state.channels.find(id);
        return {std::make_shared<const pb::GetSandboxLogsResponse>(
            logs(it == self->state.channels.end() ? nullptr : &it->second.log, *ask.request))};
      },
      [=](const Ask<pb::WatchSandboxRequest>& ask, const std::string& id, const std::shared_ptr<WatchSink>& sink) {
        return subscribe(self, ask, id, sink);
      },
      [=](changed_atom, const std::string& id, const std::shared_ptr<const pb::Sandbox>& sandbox) {
        auto& to = channel(self, id);
        to.shown = sandbox;
        to.watchers.remove_if([](const Watcher& watcher) { return watcher.sink->closed(); });
        for (auto it = to.watchers.begin(); it != to.watchers.end();) {
          const bool ends = it->request->stop_on_terminal() && is_terminal(*sandbox);
          if (it->request->follow_status() || ends) show(*it, *sandbox);
          if (ends) it->sink->close(absl::OkStatus());
          it = ends ? to.watchers.erase(it) : std::next(it);
        }
        self->state.reporter.note_handled();
        touch(self);
      },
      [=](add_atom, const std::string& id, const std::shared_ptr<const pb::PlatformEvent>& event) {
        if (!self->state.channels.contains(id)) return;  // not ours, or deleted meanwhile
        auto& to = channel(self, id);
        publish(to, to.log.add(*event));
      },
      [=](drop_atom, const std::string& id) {
        const auto it = self->state.channels.find(id);
        if (it == self->state.channels.end()) return;
        for (auto& watcher : it->second.watchers) {
          watcher.sink->close(watcher.request->follow_status() ? absl::OkStatus() : absl::CancelledError("stream closed"));
        }
        self->state.channels.erase(it);
        self->state.denials.forget(id);
        touch(self);
      },
  };
  return self->state.reporter.watch(
      self, [self] { return self->state.snapshot(); }, std::move(handlers));
}

}  // namespace openshell::gateway
