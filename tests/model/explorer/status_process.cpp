// The lives and deaths of the supervisor, and its calls.
#include <algorithm>
#include <iterator>

#include "messages/status_error.hpp"
#include "tests/model/explorer/status_fakes.hpp"

namespace openshell::model {

using namespace supervisor;

namespace {

const absl::StatusCode kCodes[] = {
    absl::StatusCode::kUnavailable,     absl::StatusCode::kDeadlineExceeded,  absl::StatusCode::kUnauthenticated,
    absl::StatusCode::kCancelled,       absl::StatusCode::kResourceExhausted, absl::StatusCode::kAborted,
    absl::StatusCode::kInternal,        absl::StatusCode::kUnknown,           absl::StatusCode::kNotFound,
    absl::StatusCode::kInvalidArgument, absl::StatusCode::kPermissionDenied,  absl::StatusCode::kFailedPrecondition,
    absl::StatusCode::kUnimplemented,   absl::StatusCode::kOutOfRange,        absl::StatusCode::kAlreadyExists,
    absl::StatusCode::kDataLoss,
};

/// The codes after which trying again may help; not asked of the code that is looked at.
bool may_succeed_later(absl::StatusCode code) {
  const auto known = std::find(std::begin(kCodes), std::end(kCodes), code);
  return known - std::begin(kCodes) < 8;
}

}  // namespace

absl::StatusCode StatusWorld::any_code() { return kCodes[choices_.below(std::size(kCodes))]; }

void StatusWorld::add_call(Process& process, Call call) {
  call.id = ++next_call_;
  call.process = process.number;
  call.since = stage_.now();
  calls_.push_back(std::move(call));
}

/// The effect takes place.
void StatusWorld::arrive(Call& call) {
  if (call.answer) return;
  call.answer = call.arrive(*this);
  message("client", "gateway", call.name);
}

/// The answer, whatever it is, reaches the supervisor if that still lives.
void StatusWorld::answer(std::size_t index, absl::Status status) {
  auto call = std::move(calls_[index]);
  calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(index));
  if (call.status) {
    const bool again = !status.ok() && may_succeed_later(status.code());
    pace_.answered(call.from, status.code(), stage_.now(), again);
    if (!status.ok() && !again && !call.answer) expected_.refused(*call.status);
    if (again) process_.token_renewed = false;
  }
  // Delivery of results is bounded: what was refused for good is dropped.
  if (call.name.starts_with("endpoints") && !status.ok() && !may_succeed_later(status.code()) && !absl::IsFailedPrecondition(status))
    last_seen_.clear();
  if (process_.alive && call.process == process_.number) {
    message("gateway", "client", call.name + (status.ok() ? " ok" : " " + std::string{absl::StatusCodeToString(status.code())}));
    auto deliver = std::make_shared<std::function<void()>>(
        [this, deliver = std::move(call.deliver), status = std::move(status)] { deliver(*this, status); });
    caf::anon_send(process_.client, run_atom::value, Completion{std::move(deliver)});
  }
}

GatewayClient StatusWorld::spawn_client(Process& process) {
  const auto answer_void = [](caf::typed_response_promise<void> promise) {
    return [promise](StatusWorld&, absl::Status status) { openshell::deliver(promise, status); };
  };
  return stage_.system().spawn([this, &process, answer_void](GatewayClient::pointer self) -> GatewayClient::behavior_type {
    return {
        [=, this, &process](config_atom) {
          auto promise = self->make_response_promise<ConfigSnapshot>();
          process.last_poll = stage_.now();
          auto given = std::make_shared<ConfigSnapshot>();
          add_call(process, {.name = "config",
                             .arrive =
                                 [given](StatusWorld& world) {
                                   *given = world.gateway_.config;
                                   return absl::OkStatus();
                                 },
                             .deliver =
                                 [promise, given](StatusWorld& world, absl::Status status) mutable {
                                   world.process_.last_poll = world.stage_.now();
                                   if (!status.ok()) {
                                     promise.deliver(to_error(status));
                                     return;
                                   }
                                   auto& life = world.process_;
                                   life.answered_revision = given->config_revision;
                                   life.answer_applies = given->admitted && given->instance_id == life.instance;
                                   life.environment_differs = false;
                                   life.last_poll = world.stage_.now();
                                   promise.deliver(*given);
                                 }});
          return promise;
        },
        [=, this, &process](environ_atom) {
          auto promise = self->make_response_promise<ProviderEnvironment>();
          process.environment_differs = true;  // until a configuration or a publication follows
          auto given = std::make_shared<ProviderEnvironment>();
          add_call(process, {.name = "environment",
                             .arrive =
                                 [given](StatusWorld& world) {
                                   const auto& gateway = world.gateway_;
                                   *given = {gateway.environment_revision, gateway.epoch, gateway.config.policy_hash, nullptr};
                                   return absl::OkStatus();
                                 },
                             .deliver =
                                 [promise, given](StatusWorld& world, absl::Status status) mutable {
                                   world.process_.last_poll = world.stage_.now();
                                   if (!status.ok()) {
                                     promise.deliver(to_error(status));
                                     return;
                                   }
                                   promise.deliver(*given);
                                 }});
          return promise;
        },
        [](submit_atom, const PolicyUpload&) -> caf::result<void> { return {}; },
        [=, this, &process](reported_atom, const PolicyStatus& status) {
          const auto from = self->current_sender() ? self->current_sender()->id() : 0;  // a promise takes it along
          auto promise = self->make_response_promise<void>();
          const auto identity = identity_of(status);
          fail(pace_.offered(from, identity, stage_.now(), process.token_renewed));
          if (!process.disk_faulty && !expected_.is_synced(identity))
            fail("not journaled", text_of(identity) + " was offered before it was on disk");
          add_call(process, {.name = text_of(identity),
                             .from = from,
                             .status = identity,
                             .arrive =
                                 [status, identity](StatusWorld& world) {
                                   const auto before = world.gateway_.results;
                                   const auto effect = world.gateway_.report(status);
                                   world.results_were(before);
                                   if (effect.answer.ok()) world.fail(world.expected_.arrived(identity, effect.changed));
                                   return effect.answer;
                                 },
                             .deliver = answer_void(promise)});
          return promise;
        },
        [=, this, &process](admit_atom, const AdmissionReport& report) {
          auto promise = self->make_response_promise<void>();
          add_call(process, {.name = "admission",
                             .arrive =
                                 [instance = process.instance, foreign = report.state == AdmissionState::pending](StatusWorld& world) {
                                   if (foreign) world.gateway_.config.instance_id = instance;
                                   return absl::OkStatus();
                                 },
                             .deliver = answer_void(promise)});
          return promise;
        },
        [=, this, &process](ready_atom, const ReadinessReport&) {
          auto promise = self->make_response_promise<ReadinessAccepted>();
          add_call(process, {.name = "readiness",
                             .arrive = [](StatusWorld&) { return absl::OkStatus(); },
                             .deliver =
                                 [promise](StatusWorld&, absl::Status status) mutable {
                                   if (!status.ok()) {
                                     promise.deliver(to_error(status));
                                     return;
                                   }
                                   promise.deliver(ReadinessAccepted{std::chrono::milliseconds{5'000}});
                                 }});
          return promise;
        },
        [=, this, &process](endpoint_atom, const EndpointReport& report) {
          const auto from = self->current_sender() ? self->current_sender()->id() : 0;
          auto promise = self->make_response_promise<void>();
          check_report(report);
          first_report(from, report);
          add_call(process, {.name = "endpoints " + std::to_string(report.sequence),
                             .arrive =
                                 [report](StatusWorld& world) {
                                   auto answer = world.gateway_.report(report);
                                   if (answer.code() == absl::StatusCode::kInvalidArgument)
                                     world.fail("report changed", "a repeated endpoint report was not the same to the byte");
                                   return answer;
                                 },
                             .deliver = answer_void(promise)});
          return promise;
        },
        [=, this, &process](analyse_atom, const DenialBatch& batch) {
          auto promise = self->make_response_promise<void>();
          for (const auto& summary : batch.summaries) {
            if (windows_taken_.contains({summary.first.host, summary.first.at}))
              fail("window again", "a window of " + summary.first.host + " was sent again after the gateway had said that it has it");
          }
          add_call(process, {.name = "denials",
                             .arrive =
                                 [batch](StatusWorld& world) {
                                   world.gateway_.analyse(batch);
                                   world.check_counts(false);
                                   return absl::OkStatus();
                                 },
                             .deliver =
                                 [promise, batch](StatusWorld& world, absl::Status status) {
                                   if (status.ok()) {
                                     for (const auto& summary : batch.summaries)
                                       world.windows_taken_.emplace(summary.first.host, summary.first.at);
                                   }
                                   openshell::deliver(promise, status);
                                 }});
          return promise;
        },
        [](exited_atom, std::int32_t) -> caf::result<void> { return {}; },
        [](finalize_atom) -> caf::result<void> { return {}; },
        [=, this, &process](renew_atom) {
          auto promise = self->make_response_promise<void>();
          add_call(process, {.name = "renew", .arrive = [](StatusWorld&) { return absl::OkStatus(); }, .deliver = answer_void(promise)});
          process.token_renewed = true;  // asked for: that is all that its asker waits for
          return promise;
        },
        [](run_atom, const Completion& completion) { (*completion.run)(); },
    };
  });
}

/// As the program does it, from the point where a configuration was built and is in force.
void StatusWorld::start_process() {
  const auto& config = gateway_.config;
  if (process_.alive || !config.admitted || config.policy_hash.starts_with("bad")) return;
  const int number = process_.number + 1;
  process_ = {};
  auto& process = process_;
  process.number = number;
  process.alive = true;
  process.began = process.last_poll = stage_.now();
  process.instance = "instance-" + std::to_string(number);
  gateway_.config.instance_id = process.instance;
  settled_publication_ = 0;  // each process counts its own
  note("",
       "supervisor " + std::to_string(number) + " starts with " + config.policy_hash + " version " + std::to_string(config.version.value));

  process.box = std::make_shared<EndpointBox>();
  process.host = std::make_shared<Host>();
  process.host->world = this;
  process.host->box = process.box;
  const Candidate running{config, {gateway_.environment_revision, gateway_.epoch, config.policy_hash, nullptr}, true, true};
  process.host->put_into_force(running);
  process.answered_revision = config.config_revision;
  process.disk_faulty = disk_fails_ || crash_in_append_;
  expected_.started(config);

  process.files = std::make_shared<JournalFiles>(std::make_unique<MemoryDisk>(disk_), "sandbox", "generation-" + std::to_string(number),
                                                 JournalFiles::Limits{.file_bytes = 256, .files = 64, .read_back = 2});
  process.journal = open_journal(*process.files, {.window = 4, .capacity = 1'000, .batch = 2});
  if (!process.files->is_open()) {
    process.disk_faulty = process.opens_late = true;
    expected_.journal_closed();
  }

  process.client = spawn_client(process);
  stage_.keep(caf::actor_cast<caf::actor>(process.client), "client");
  process.port = std::make_shared<Port>();
  process.transport = std::make_shared<Transport>();
  process.transport->world = this;
  process.denials = std::make_shared<DenialQueue>();

  auto options = std::make_shared<RootOptions>();
  options->gateway = process.client;
  options->logs.queue = std::make_shared<LogQueue>();
  options->logs.transport = std::make_shared<Logs>();
  options->denials = process.denials;
  options->endpoints = process.box;
  options->journal = process.journal;
  options->journal_files = process.files;
  options->boundary = {process.port, process.host, [](LinkState) {}};
  options->publisher = {process.host, process.instance, running.snapshot, running.environment, true};
  options->publisher_has_own_thread = false;
  options->poller.instance_id = process.instance;
  options->poller.running = running.snapshot;
  options->poller.environment = running.environment;
  options->session.transport = process.transport;
  options->session.relays = std::make_shared<Relays>();
  options->session.random = [] { return 0.0; };
  options->escalate = [this, number](const std::string& name, OnDeath) {
    if (process_.number != number || !process_.alive) return;
    note("root", name + " may not be missing");
    process_.escalated = true;
  };
  static const std::map<std::string, std::string> kShort = {
      {"status_outbox", "outbox"}, {"journal_writer", "writer"},      {"runtime_publisher", "publisher"},
      {"policy_poller", "poller"}, {"endpoint_observer", "observer"}, {"denial_aggregator", "aggregator"},
      {"log_push", "logs"},        {"gateway_client", "client"}};
  options->started = [this](const std::string& name, const caf::actor& child) {
    const auto found = kShort.find(name);
    stage_.keep(child, found == kShort.end() ? name : found->second);
  };
  auto root = stage_.system().spawn(supervisor::root, std::shared_ptr<const RootOptions>{options});
  stage_.keep(caf::actor_cast<caf::actor>(root), "root");
}

void StatusWorld::end_session() {
  if (gateway_.session.empty()) return;
  gateway_.session.clear();
  nudged_.clear();
  last_seen_.clear();
}

void StatusWorld::crash_process(const std::string& why) {
  if (!process_.alive) return;
  note("", "supervisor " + std::to_string(process_.number) + " dies: " + why);
  process_.alive = false;
  end_session();
  session_wanted_ = false;
  denials_lost_ = true;
  open_observations_.clear();
  // Calls on their way may still arrive; nobody waits for their answers.
  for (auto& call : calls_) {
    call.deliver = nullptr;
    if (!call.answer && choices_.one_in(2)) slow_.push_back(std::move(call));
  }
  calls_.clear();
  process_.client = nullptr;
  dying_ = true;  // what actors still do until they are gone never happened
  stage_.kill_all();
  dying_ = false;
  calls_.clear();
  process_.journal->on_push(nullptr);
  process_.denials->on_fill(nullptr);
  process_.box->on_fill(nullptr);
  process_.files.reset();
  disk_->crash([this](std::size_t size) { return choices_.below(static_cast<std::uint32_t>(size) + 1); });
  expected_.crashed();
  stalled_until_ = Stage::Duration{0};
}

void StatusWorld::crash_actor() {
  static const char* const kNames[] = {"outbox", "writer", "aggregator", "observer", "session",
                                       "logs",   "poller", "publisher",  "boundary", "client"};
  const std::string name = kNames[choices_.below(std::size(kNames))];
  const auto* actor = stage_.named(name);
  if (actor == nullptr || !process_.alive) return;
  note(name, "dies");
  process_.restarted.insert(name);
  if (name == "aggregator") denials_lost_ = true;
  if (name == "observer") last_seen_.clear();
  if (name == "session") end_session();
  if (name == "writer" || name == "outbox") process_.disk_faulty = true;  // what is being written is written again
  caf::anon_send_exit(*actor, caf::exit_reason::unhandled_exception);
}

}  // namespace openshell::model
