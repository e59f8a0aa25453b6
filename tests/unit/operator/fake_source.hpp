// A gateway of tests: its actors, its sessions, and relays whose other end the test holds.
#pragma once

#include <boost/asio/io_context.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/gateway/relay_pipe.hpp"
#include "actors/introspection/actor_frames.hpp"
#include "api/operator/actor_source.hpp"
#include "messages/operator.hpp"
#include "openshell.pb.h"

namespace openshell::api::test {

class FakeSource final : public ActorSource {
 public:
  void changes(std::uint64_t since, Then<ActorChanges> then) override {
    ++asked_changes;
    asked_since = since;
    if (hold_changes) {
      held_changes.push_back(std::move(then));
      return;
    }
    ActorChanges out;
    {
      const std::lock_guard lock{mutex};
      out.seq = seq;
      out.whole = since == 0;
      if (since != seq) out.actors = actors;
    }
    then(out);
  }
  void inquire(const std::string& actor, Then<ActorSnapshot> then) override {
    ++inquired;
    ActorSnapshot out;
    out.id = actor;
    out.summary = "asked itself";
    actor == "stuck" ? then(absl::DeadlineExceededError("the actor does not answer")) : then(out);
  }
  void sessions(Then<std::map<std::string, std::string>> then) override {
    const auto copy = [&] {
      const std::lock_guard lock{mutex};
      return sessions_now;
    }();
    then(copy);
  }
  void name_of(const std::string& sandbox_id, Then<std::string> then) override { then("default/" + sandbox_id); }
  void open(const std::string& sandbox_id, Then<std::shared_ptr<gateway::RelayEnd>> then) override {
    ++opens;
    if (refuse) return then(absl::UnavailableError("unsupported internal service: openshell.actors/1"));
    waiting.emplace_back(sandbox_id, std::move(then));
    if (claim_at_once) claim();
  }
  /// Every relay that waits is claimed by its supervisor; `supervisors` holds that side.
  void claim() {
    auto now = std::exchange(waiting, {});
    for (auto& [id, then] : now) {
      auto pair = gateway::make_relay();
      supervisors[id] = pair.supervisor;
      then(pair.requester);
    }
  }
  void denials(const std::string& denial_id, Then<gateway::DenialLines> then) override {
    gateway::DenialLines out;
    for (const auto& line : lines) {
      if (denial_id.empty() || line.denial_id == denial_id) out.lines.push_back(line);
    }
    then(out);
  }
  void proposals(const std::string&, Then<std::shared_ptr<const v1::GetDraftPolicyResponse>> then) override {
    then(std::make_shared<const v1::GetDraftPolicyResponse>(drafts));
  }
  void revisions(const std::string&, Then<std::shared_ptr<const v1::ListSandboxPoliciesResponse>> then) override {
    then(std::make_shared<const v1::ListSandboxPoliciesResponse>(policies));
  }

  std::mutex mutex;
  std::uint64_t seq = 1;
  std::vector<ActorSnapshot> actors;
  std::map<std::string, std::string> sessions_now;
  bool refuse = false, claim_at_once = true, hold_changes = false;
  std::uint64_t asked_since = 0;
  std::vector<Then<ActorChanges>> held_changes;
  std::atomic<int> asked_changes{0}, inquired{0}, opens{0};
  std::vector<std::pair<std::string, Then<std::shared_ptr<gateway::RelayEnd>>>> waiting;
  std::map<std::string, std::shared_ptr<gateway::RelayEnd>> supervisors;
  std::vector<gateway::DenialLine> lines;
  v1::GetDraftPolicyResponse drafts;
  v1::ListSandboxPoliciesResponse policies;
};

inline ActorSnapshot some_actor(const std::string& id, const std::string& summary = {}) {
  ActorSnapshot out;
  out.id = out.kind = id;
  out.summary = summary;
  return out;
}

/// What a supervisor says: one actor of its own and one of its sandbox.
inline std::string snapshot_frame(std::uint64_t epoch, std::uint64_t seq, const std::string& summary) {
  actors_wire::ToGateway message;
  auto& snapshot = *message.mutable_snapshot();
  snapshot.set_epoch(epoch);
  snapshot.set_seq(seq);
  for (const auto kind : {actors_wire::Process::SUPERVISOR, actors_wire::Process::SANDBOX}) {
    auto& process = *snapshot.add_processes();
    process.set_kind(kind);
    fill_process({some_actor(kind == actors_wire::Process::SANDBOX ? "exec_registry" : "policy_poller", summary)}, 10'000, process);
  }
  return encode_actors_frame(message);
}

}  // namespace openshell::api::test
