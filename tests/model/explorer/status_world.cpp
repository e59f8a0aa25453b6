#include "tests/model/explorer/status_world.hpp"

#include "tests/model/explorer/status_fakes.hpp"

namespace openshell::model {

using namespace supervisor;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kMaxSteps = 4'000;             // of the part with faults
constexpr std::size_t kMaxHealingSteps = 100'000;    // of the part without
constexpr Stage::Duration kCallDeadline = 10s;       // of the real client
constexpr Stage::Duration kPollInterval = 10'001ms;  // of the poller, with a random factor of 1
constexpr Stage::Duration kLateJournal = 30s;        // a retry of the journal and the longest back-off of an actor
constexpr Stage::Duration kLongestHealing = 400s;
constexpr int kFirstResult = 100;  // above the wire's: each result is one observation

}  // namespace

StatusWorld::StatusWorld(Stage& stage, Choices& choices) : stage_{stage}, choices_{choices} {
  disk_->fault = [this](const std::string& operation) {
    if (dying_) return absl::CancelledError("dead");
    if (disk_fails_) return absl::ResourceExhaustedError("no space left");
    if (crash_in_append_ && operation == "sync") return absl::InternalError("the process dies here");
    return absl::OkStatus();
  };
  disk_->synced = [this](std::string_view bytes) {
    for (const auto& entry : read_journal(journal_head(0) + std::string{bytes}).statuses) {
      fail(expected_.synced(identity_of(entry.status), process_.disk_faulty));
      message("writer", "disk", text_of(identity_of(entry.status)));
    }
  };
  disk_->kept = [this](std::string_view bytes) {
    for (const auto& entry : read_journal(journal_head(0) + std::string{bytes}).statuses) {
      fail(expected_.synced(identity_of(entry.status), true));
      note("disk", text_of(identity_of(entry.status)) + " survived");
    }
  };
}

StatusWorld::~StatusWorld() {
  calls_.clear();
  slow_.clear();
  process_.client = nullptr;
  dying_ = true;
  stage_.kill_all();
  calls_.clear();
}

std::optional<Violation> StatusWorld::run() {
  start_process();
  actions_ = 2 + choices_.below(14);
  while (!violation_ && actions_ > 0 && !choices_.exhausted() && steps_ < kMaxSteps) step();
  if (!violation_) heal();
  if (!violation_) check_end();
  return violation_;
}

std::string StatusWorld::stalled() const { return stage_.now() < stalled_until_ ? "writer" : std::string{}; }

// ---- steps

void StatusWorld::step() {
  ++steps_;
  if (process_.alive && process_.escalated) return crash_process("an actor is missing");
  switch (choices_.below(16)) {
    case 15:
    case 14:
      if (act()) return;
      break;
    case 13:
    case 12:
    case 11:
      if (pass_time()) return;
      break;
    case 10:
    case 9:
    case 8:
    case 7:
      if (answer_call()) return;
      break;
    default:
      break;
  }
  if (run_actor() || answer_call() || pass_time()) return;
  act();
}

bool StatusWorld::run_actor() {
  const auto who = stalled();
  const auto count = stage_.runnable(who);
  if (count == 0) return false;
  stage_.run(choices_.below(static_cast<std::uint32_t>(count)), who);
  if (crash_in_append_ && process_.alive && process_.journal->with([](OutboxQueue& queue) { return queue.disk_fails(); })) {
    crash_in_append_ = false;
    crash_process("in the middle of a write to the journal");
  }
  return true;
}

/// One call goes one step further: it arrives, is answered, fails before or behind its effect, or is given up and arrives later.
bool StatusWorld::answer_call() {
  const auto slow = healing_ ? 0 : slow_.size();
  const auto count = calls_.size() + slow;
  if (count == 0) return false;
  const auto index = choices_.below(static_cast<std::uint32_t>(count));
  if (index >= calls_.size()) {
    auto call = std::move(slow_[index - calls_.size()]);
    slow_.erase(slow_.begin() + static_cast<std::ptrdiff_t>(index - calls_.size()));
    call.name += " (late)";
    arrive(call);
    return true;
  }
  auto& call = calls_[index];
  switch (healing_ ? 0 : choices_.below(12)) {
    case 11: {  // given up by the supervisor, and still under way
      auto copy = call;
      copy.deliver = nullptr;
      if (!call.answer) slow_.push_back(std::move(copy));
      answer(index, absl::DeadlineExceededError("too slow"));
      return true;
    }
    case 10:  // never arrives
    case 9:
      if (!call.answer) {
        // A report that comes out of turn is made anew: no other call has that.
        const bool turn = call.name.starts_with("endpoints") && choices_.one_in(3);
        answer(index, absl::Status{turn ? absl::StatusCode::kFailedPrecondition : any_code(), "fault"});
        return true;
      }
      break;
    case 8:  // has its effect, and the answer is lost
    case 7:
      arrive(call);
      answer(index, absl::Status{any_code(), "fault"});
      return true;
    case 6:  // arrives; the answer takes its time
      if (!call.answer) {
        arrive(call);
        return true;
      }
      break;
    default:
      break;
  }
  arrive(call);
  answer(index, *calls_[index].answer);
  return true;
}

/// To the next moment at which something falls due. Actors are quick: no time passes while one has something to do.
bool StatusWorld::pass_time() {
  if (stage_.runnable(stalled()) > 0) return false;
  check_at_rest_of_actors();
  auto next = stage_.next_timer();
  for (const auto& call : calls_) next = std::min(next, call.since + kCallDeadline);
  if (stage_.now() < stalled_until_) next = std::min(next, stalled_until_);
  if (next == Stage::Duration::max()) return false;
  stage_.advance_to(next);
  for (std::size_t i = 0; i < calls_.size();) {
    if (calls_[i].since + kCallDeadline > stage_.now()) {
      ++i;
      continue;
    }
    auto copy = calls_[i];
    copy.deliver = nullptr;
    if (!copy.answer) slow_.push_back(std::move(copy));
    answer(i, absl::DeadlineExceededError("10 s"));
  }
  return true;
}

bool StatusWorld::act() {
  if (actions_ == 0) return false;
  --actions_;
  if (!process_.alive) {
    if (choices_.one_in(3)) write_policy();
    start_process();
    return true;
  }
  switch (choices_.below(20)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
      write_policy();
      break;
    case 5:
    case 6:
    case 7:
      session_event();
      break;
    case 8:
    case 9:
      deny();
      break;
    case 10:
    case 11:
    case 12:
    case 13:
      observe();
      break;
    case 14:
    case 15:
      crash_actor();
      break;
    case 16:
      crash_process("killed");
      break;
    case 17:
      restart_gateway();
      break;
    default:
      disk_event();
      break;
  }
  return true;
}

void StatusWorld::heal() {
  healing_ = true;
  healed_ = stage_.now();
  disk_fails_ = crash_in_append_ = false;
  stalled_until_ = Stage::Duration{0};
  slow_.clear();
  note("", "everything heals");
  auto& config = gateway_.config;
  const bool works = config.source == PolicySource::sandbox && config.admitted && !config.policy_hash.starts_with("bad");
  last_write_ = !works || !choices_.one_in(2);  // without one, what failed has to come right by itself
  if (last_write_) {
    if (config.source == PolicySource::global) gateway_.delete_global();
    gateway_.write("h" + std::to_string(++contents_));
    config.failure_mode = FailureMode::fail_closed;
  }
  const auto end = stage_.now() + kLongestHealing;
  for (std::size_t left = kMaxHealingSteps; !violation_; --left) {
    if (left == 0) return fail("stuck", "the actors send each other messages for ever");
    if (process_.alive && process_.escalated) crash_process("an actor is missing");
    if (!process_.alive) start_process();
    if (session_wanted_) session_event();
    if (run_actor() || answer_call()) continue;
    if (at_rest()) return;
    if (stage_.now() > end) {
      fail("stuck", std::to_string(process_.journal->size()) + " statuses wait for ever; configuration " +
                        std::to_string(process_.host->handled_revision) + " of " + std::to_string(gateway_.config.config_revision) +
                        " is handled");
      return;
    }
    if (!pass_time()) {
      fail("stuck", "nothing will ever happen again");
      return;
    }
  }
}

bool StatusWorld::at_rest() const {
  if (!process_.alive || process_.escalated || process_.journal->size() > 0 || gateway_.session.empty() || !nudged_.empty()) return false;
  // What it holds from before is not known until it is open and the outbox, which may have died, has heard of it.
  if (process_.opens_late && (!process_.files->is_open() || stage_.now() < healed_ + kLateJournal)) return false;
  if (process_.host->handled_revision != gateway_.config.config_revision) return false;
  // Where the gateway was made to refuse the acknowledgement for good, it takes no results under that revision either.
  const bool unacknowledged = !last_write_ && gateway_.current() != gateway_.config.version.value;
  for (const auto& [endpoint, result] : last_seen_) {
    if (unacknowledged) break;
    const auto found = gateway_.results.find(endpoint);
    if (found == gateway_.results.end() || found->second != result) return false;
  }
  if (denials_lost_) return true;
  for (const auto& [host, count] : denied_) {
    const auto found = gateway_.counts.find(host);
    if (found == gateway_.counts.end() || found->second.total < count) return false;
  }
  return true;
}

// ---- what the world does

void StatusWorld::write_policy() {
  auto& config = gateway_.config;
  switch (choices_.below(12)) {
    case 0:
    case 1:
    case 2:
    case 3:
      gateway_.write("h" + std::to_string(++contents_));
      break;
    case 4:
    case 5:
      gateway_.write("bad" + std::to_string(++contents_));
      break;
    case 6:
      gateway_.write(config.policy_hash);
      break;
    case 7:  // the content of an earlier revision
      gateway_.write("h" + std::to_string(1 + choices_.below(static_cast<std::uint32_t>(contents_))));
      break;
    case 8:
      if (config.source == PolicySource::global) {
        gateway_.delete_global();
      } else {
        gateway_.write_global(choices_.one_in(2) ? "badglobal" : "global" + std::to_string(++contents_));
      }
      break;
    case 9:
      config.failure_mode = config.failure_mode == FailureMode::fail_closed ? FailureMode::retain_last_valid : FailureMode::fail_closed;
      gateway_.revised();
      break;
    case 10:
      gateway_.change_environment(choices_.one_in(2));
      last_seen_.clear();
      break;
    default:
      config.admitted = !config.admitted;
      gateway_.revised();
      break;
  }
  note("gateway", (config.admitted ? "" : "not admitted ") + config.policy_hash + " version " + std::to_string(config.version.value));
  if (gateway_.session.empty() || choices_.one_in(4)) return;
  const auto id = "n" + std::to_string(++nudges_);
  nudged_[id] = config.config_revision;
  message("gateway", "session", "nudge " + id);
  process_.transport->bring(SessionEvent::ConfigUpdate{id, false});
}

void StatusWorld::session_event() {
  auto& transport = *process_.transport;
  if (session_wanted_) {
    session_wanted_ = false;
    last_seen_.clear();
    nudged_.clear();
    gateway_.begin_session("s" + std::to_string(++sessions_));
    message("gateway", "session", "accepted " + gateway_.session);
    transport.bring(SessionEvent::Accepted{gateway_.session, 15s});
  } else if (!gateway_.session.empty() && choices_.one_in(2)) {
    end_session();
    message("gateway", "session", "ended");
    transport.bring(SessionEvent::Ended{14, "connection lost"});
  }
}

void StatusWorld::deny() {
  const auto host = "h" + std::to_string(choices_.below(2)) + ".test";
  DenialEvent event;
  event.denial_id = "d" + std::to_string(++next_call_);
  event.host = host;
  event.port = 443;
  event.binary = "/usr/bin/curl";
  event.stage = "transparent_tcp_connect";
  event.at = std::chrono::system_clock::time_point{std::chrono::hours{1} +
                                                   std::chrono::duration_cast<std::chrono::system_clock::duration>(stage_.now())} +
             std::chrono::microseconds{next_call_};
  ++denied_[host];
  message("workload", "aggregator", "denied " + host);
  process_.denials->push(std::move(event));
}

/// A request begins under what is in force, and ends some time later with a result.
void StatusWorld::observe() {
  const auto& host = *process_.host;
  if (open_observations_.empty() || (open_observations_.size() < 3 && choices_.one_in(2))) {
    if (host.quarantined) return;
    const std::string endpoint = kEndpoints[choices_.below(std::size(kEndpoints))];
    observations_.push_back({process_.number, host.generation, host.publication, endpoint, host.running.policy_hash, host.environment});
    open_observations_.push_back(observations_.size() - 1);
    if (!choices_.one_in(2)) return;
  }
  const auto place = choices_.below(static_cast<std::uint32_t>(open_observations_.size()));
  const auto number = open_observations_[place];
  open_observations_.erase(open_observations_.begin() + place);
  const auto& seen = observations_[number];
  const int result = kFirstResult + static_cast<int>(number);
  message("workload", "box", seen.endpoint + "=" + std::to_string(result));
  if (seen.generation == host.generation) last_seen_[seen.endpoint] = result;
  process_.box->observe(seen.generation, {"rule", seen.endpoint == kEndpoints[0] ? 0 : 1}, result);
}

void StatusWorld::disk_event() {
  switch (choices_.below(4)) {
    case 0:  // slow
      stalled_until_ = stage_.now() + (choices_.one_in(2) ? 7s : 3s);
      process_.disk_faulty = true;
      note("disk", "hangs");
      break;
    case 1:
      crash_in_append_ = true;
      process_.disk_faulty = true;
      break;
    default:
      disk_fails_ = !disk_fails_;
      process_.disk_faulty = true;
      note("disk", disk_fails_ ? "is full" : "has room");
      break;
  }
}

void StatusWorld::restart_gateway() {
  note("gateway", "restarts");
  gateway_.restart();
  nudged_.clear();
  last_seen_.clear();
  while (!calls_.empty()) {
    if (choices_.one_in(2)) arrive(calls_.front());
    answer(0, absl::UnavailableError("the gateway restarts"));
  }
  slow_.clear();
  if (process_.transport) process_.transport->bring(SessionEvent::Ended{14, "the gateway restarts"});
}

// ---- invariants

void StatusWorld::fail(std::string invariant, std::string what) {
  if (violation_) return;
  note("", "BROKEN: " + invariant + ": " + what);
  violation_ = Violation{std::move(invariant), std::move(what)};
}

/// Nobody has anything to do and time is about to pass.
void StatusWorld::check_at_rest_of_actors() {
  if (!process_.alive || process_.escalated || crash_in_append_) return;
  const auto& host = *process_.host;
  settled_publication_ = host.publication;
  if (process_.answer_applies && !process_.environment_differs && host.handled_revision < process_.answered_revision)
    fail("enforcement waits", "configuration " + std::to_string(process_.answered_revision) + " is known and not in force");
  if (host.must_deny && !host.quarantined) fail("allowed", "a policy was rejected, and what ran before still decides");
  const bool polling = std::any_of(calls_.begin(), calls_.end(), [](const Call& call) {
    return call.name == "config" || call.name == "environment" || call.name == "admission";
  });
  if (!polling && stage_.now() - process_.last_poll > kPollInterval)
    fail("no polls", "the gateway was not asked for longer than the interval");
}

void StatusWorld::check_report(const EndpointReport& report) {
  const std::pair key{report.session_id, report.sequence};
  auto digest = GatewayModel::digest_of(report);
  if (key == endpoint_key_) {
    if (digest != endpoint_digest_)
      fail("report changed", "endpoint report " + std::to_string(report.sequence) + " was sent again with other content");
    return;
  }
  endpoint_key_ = key;
  endpoint_digest_ = std::move(digest);
  for (const auto& seen : report.observations) {
    if (seen.result < kFirstResult) continue;
    const auto& truth = observations_.at(static_cast<std::size_t>(seen.result - kFirstResult));
    if (truth.hash != report.policy_hash || truth.environment != report.provider_env_revision || truth.endpoint != seen.endpoint_id)
      fail("attribution", "a result under " + truth.hash + " (environment " + std::to_string(truth.environment) + ") was reported for " +
                              report.policy_hash + " (environment " + std::to_string(report.provider_env_revision) + ")");
    if (truth.publication < settled_publication_ || truth.process != process_.number)
      fail("revived",
           "a result of publication " + std::to_string(truth.publication) + " was reported under a later one of the same content");
  }
}

void StatusWorld::first_report(caf::actor_id from, const EndpointReport& report) {
  if (std::exchange(reporter_, std::pair{from, report.session_id}) == std::pair{from, report.session_id}) return;
  std::erase_if(last_seen_, [&](const auto& seen) {
    return std::none_of(report.observations.begin(), report.observations.end(),
                        [&](const auto& one) { return one.endpoint_id == seen.first && one.result == seen.second; });
  });
}

void StatusWorld::results_were(const std::map<std::string, int>& before) {
  std::erase_if(last_seen_, [&](const auto& seen) {
    const auto was = before.find(seen.first);
    return was != before.end() && was->second == seen.second && gateway_.results[seen.first] != seen.second;
  });
}

void StatusWorld::check_counts(bool final) {
  for (const auto& [host, count] : gateway_.counts) {
    const auto denied = denied_[host];
    if (count.total > denied)
      fail("counted twice",
           std::to_string(count.total) + " denials of " + host + " were counted and " + std::to_string(denied) + " happened");
    if (final && !denials_lost_ && count.total < denied)
      fail("not counted",
           std::to_string(count.total) + " denials of " + host + " were counted and " + std::to_string(denied) + " happened");
  }
}

void StatusWorld::check_end() {
  fail(expected_.complete());
  check_counts(true);
  const auto version = gateway_.config.version.value;
  // Without a last write the newest status may be one that the gateway was made to refuse for good.
  if (last_write_ && gateway_.current() != version)
    fail("pending", "version " + std::to_string(version) + " is in force and the gateway says " + std::to_string(gateway_.current()));
  for (const auto& [number, row] : gateway_.history().rows()) {
    if (last_write_ && row.value.status() == openshell::v1::POLICY_STATUS_PENDING)
      fail("pending", "version " + std::to_string(number) + " stays pending");
  }
  const auto& host = *process_.host;
  if (host.quarantined || host.running.version.value != version) fail("not in force", "the newest policy does not run");
  if (!nudged_.empty()) fail("nudge", "the nudge " + nudged_.begin()->first + " was never answered");
}

void StatusWorld::message(const std::string& from, const std::string& to, const std::string& label) {
  if (auto* chart = stage_.chart()) chart->message(stage_.chart_now(), from, to, label);
}

void StatusWorld::note(const std::string& where, const std::string& text) {
  if (auto* chart = stage_.chart()) chart->note(stage_.chart_now(), where, text);
}

}  // namespace openshell::model
