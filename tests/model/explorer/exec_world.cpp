#include "tests/model/explorer/exec_world.hpp"

#include <fcntl.h>

#include <algorithm>

#include "actors/sandbox/launcher_control.hpp"
#include "actors/sandbox/managed_process.hpp"
#include "messages/supervisor.hpp"

namespace openshell::model {

using namespace sandbox;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kAccepted = 4, kRetained = 2;  // limits of the registry here
constexpr const char* kIds[] = {"a", "b", "c", "d", "e", "f"};

isolation::FileDescriptor nothing() { return isolation::FileDescriptor{::open("/dev/null", O_RDWR | O_CLOEXEC)}; }

}  // namespace

/// The call whose answer became an attachment.
class ExecWorld::Call final : public sandbox::Call {
 public:
  const std::shared_ptr<const CallRequest>& request() const override { return request_; }
  void respond(const boundary::Response&, std::shared_ptr<CallStream>) override {}
  void read() override {}
  void write(std::string) override {}
  void finish(CallEnd, const std::string&) override {}
  bool over() const override { return false; }
  void on_over(std::function<void()>) override {}

 private:
  std::shared_ptr<const CallRequest> request_;
};

ExecWorld::ExecWorld(Stage& stage, Choices& choices) : stage_{stage}, choices_{choices} {}

ExecWorld::~ExecWorld() {
  launches_.clear();
  registry_ = nullptr;
  launcher_ = nullptr;
  caller_ = nullptr;
  stage_.kill_all();
  processes_.clear();
  io_.restart();
  io_.poll();
}

std::uint64_t ExecWorld::unix_ms() const {
  return 1'000'000 + static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(stage_.now()).count());
}

void ExecWorld::spawn() {
  auto& system = stage_.system();
  launcher_ = system.spawn([this](LauncherControl::pointer self) -> LauncherControl::behavior_type {
    return {
        [this](introspect_atom) {  // a promise is delivered by its own actor only
          if (!launches_.empty()) launch(!choices_.one_in(4));
          return ActorSnapshot{};
        },
        [](discover_atom) { return outcome(boundary::ImagePolicy{}); },
        [](files_atom) { return outcome(boundary::ProviderFilesSupported{}); },
        [](main_atom, const LaunchOrder&) { return LaunchOutcome{}; },
        [this, self](launch_atom, const LaunchOrder& order) {
          auto promise = self->make_response_promise<LaunchOutcome>();
          const auto& id = order.order->request->envelope.request_id;
          const auto& exec = std::get<boundary::Exec>(order.order->request->envelope.request);
          if (++launched_[id] > 1) fail("executed twice", "the exec " + id + " was launched again");
          if (exec.expires_at_unix_ms <= unix_ms()) fail("expired", "the exec " + id + " was launched after it had expired");
          if (launched_.size() > kAccepted) fail("limit", "more execs were launched than are accepted");
          const auto known = accepted_.emplace(id, order.order->request->envelope.payload_digest);
          if (known.first->second != order.order->request->envelope.payload_digest)
            fail("other payload", "the exec " + id + " was launched with another payload than was accepted");
          message("registry", "launcher", "launch " + id);
          launches_.push_back({order, promise});
          return promise;
        },
        [](environ_atom, const Operation&) {
          return outcome(boundary::ProviderEnvironmentUpdated{1, 1, true});
        },
    };
  });
  auto tree = system.spawn([this](TreeControl::pointer) -> TreeControl::behavior_type {
    return {
        [](introspect_atom) { return ActorSnapshot{}; },
        [](freeze_atom) { return std::string{}; },
        [](resume_atom) { return std::string{}; },
        [](stop_atom, std::uint32_t) { return std::string{}; },
        [this](kill_atom, const ProcessRef& ref) {
          auto& process = processes_.at(ref.process->id());
          if (!process.status) {
            process.status = boundary::ExitStatus{true, 9};
            process.process->exited(*process.status);
            process.order->on_exit(process.process);
          }
          return std::string{};
        },
    };
  });
  registry_ = system.spawn(
      exec_registry,
      ExecRegistryDependencies{launcher_, tree, "g", {.accepted = kAccepted, .retained = kRetained}, [this] { return unix_ms(); }},
      Directory{});
  caller_ = system.spawn([](caf::event_based_actor*) -> caf::behavior {
    return {[](supervisor::run_atom, const supervisor::Completion& work) { (*work.run)(); }};
  });
  stage_.keep(caf::actor_cast<caf::actor>(launcher_), "launcher");
  stage_.keep(caf::actor_cast<caf::actor>(tree), "tree");
  stage_.keep(caf::actor_cast<caf::actor>(registry_), "registry");
  stage_.keep(caller_, "boundary");
}

std::optional<Violation> ExecWorld::run() {
  spawn();
  actions_ = 4 + choices_.below(28);
  for (int steps = 0; steps < 2'000 && !violation_ && actions_ > 0 && !choices_.exhausted(); ++steps) step();
  // In the end the launcher is done, every process has ended, and whoever still waits is answered.
  stage_.run_all();
  while (!violation_ && !launches_.empty()) {
    caf::anon_send(launcher_, introspect_atom::value);
    stage_.run_all();
  }
  while (std::any_of(processes_.begin(), processes_.end(), [](const auto& one) { return !one.second.status; })) exit_process();
  stage_.run_all();
  if (!violation_) check_at_rest();
  for (const auto& request : requests_) {
    if (!violation_ && !request.done && !request.abandoned) fail("no answer", "a request about " + request.subject + " is never answered");
  }
  if (!violation_) check_nothing_retained();
  return violation_;
}

void ExecWorld::step() {
  const auto count = stage_.runnable();
  switch (choices_.below(8)) {
    case 7:
    case 6:
    case 5:
      if (act()) return;
      break;
    case 4:
      if (!launches_.empty()) return caf::anon_send(launcher_, introspect_atom::value);
      break;
    case 3:
      if (pass_time()) return;
      break;
    default:
      break;
  }
  if (count > 0) return stage_.run(choices_.below(static_cast<std::uint32_t>(count)));
  if (!launches_.empty()) return caf::anon_send(launcher_, introspect_atom::value);
  if (!act()) pass_time();
}

bool ExecWorld::pass_time() {
  if (stage_.runnable() > 0) return false;
  check_at_rest();
  stage_.advance_to(stage_.now() + std::chrono::seconds{1 + choices_.below(35)});
  return true;
}

std::string ExecWorld::some_process() {
  if (processes_.empty()) return "g:exec:99";
  auto at = processes_.begin();
  std::advance(at, choices_.below(static_cast<std::uint32_t>(processes_.size())));
  return at->first;
}

bool ExecWorld::act() {
  if (actions_ == 0) return false;
  --actions_;
  switch (choices_.below(16)) {
    default:
      ask(Kind::exec, kIds[choices_.below(std::size(kIds))], choices_.one_in(6) ? "other" : "same",
          unix_ms() + (choices_.one_in(5) ? 0 : 10'000));
      break;
    case 5:
    case 6:
    case 7:
      ask(Kind::wait, some_process());
      break;
    case 8:
    case 9:
      exit_process();
      break;
    case 10:
    case 11: {
      const auto found = processes_.find(some_process());
      if (found != processes_.end()) release(found->second);
      break;
    }
    case 12:
      ask(Kind::attach, some_process());
      break;
    case 13:
      ask(Kind::survey, "all");
      break;
    case 14:
      ask(choices_.one_in(2) ? Kind::kill : Kind::signal, some_process());
      break;
    case 15:  // the caller of an open request goes away
      for (auto& request : requests_) {
        if (!request.done && !request.abandoned) {
          request.abandoned = true;
          message("boundary", "registry", "abandons " + request.subject);
          break;
        }
      }
      break;
  }
  return true;
}

void ExecWorld::ask(Kind kind, std::string subject, std::string digest, std::uint64_t expires) {
  const auto known = processes_.find(subject);
  requests_.push_back({kind, subject, std::move(digest), expires, known != processes_.end() && known->second.status.has_value()});
  const auto number = requests_.size() - 1;
  switch (kind) {
    case Kind::exec:
      return send(number, boundary::Exec{expires, {}}, subject);
    case Kind::wait:
      return send(number, boundary::Wait{subject}, "w");
    case Kind::attach:
      return send(number, boundary::AttachProcess{subject}, "t");
    case Kind::signal:
      return send(number, boundary::ExecSignal{subject, boundary::ProcessSignal::term}, "s");
    case Kind::kill:
      return send(number, boundary::Terminate{subject}, "k");
    case Kind::survey:
      return send(number, boundary::Confirm{}, "v");
  }
}

void ExecWorld::send(std::size_t number, const boundary::Request& operation, const std::string& request_id) {
  auto call = std::make_shared<CallRequest>();
  call->envelope = {request_id, requests_[number].digest, operation};
  const auto kind = requests_[number].kind;
  auto work = [this, number, kind, call = std::shared_ptr<const CallRequest>{std::move(call)}] {
    auto* self = caf::actor_cast<caf::event_based_actor*>(caller_);
    const auto answer = [this, number](const Outcome& got) { answered(number, *got.answer); };
    const auto error = [this](const caf::error&) { fail("registry died", "a request was answered with an error of the actor"); };
    const Operation about{call};
    switch (kind) {
      case Kind::exec:
        return self->request(registry_, caf::infinite, exec_atom::value, about).then(answer, error);
      case Kind::wait:
        return self->request(registry_, caf::infinite, sandbox::wait_atom::value, about).then(answer, error);
      case Kind::attach:
        return self->request(registry_, caf::infinite, attach_atom::value, about).then(answer, error);
      case Kind::signal:
        return self->request(registry_, caf::infinite, signal_atom::value, about).then(answer, error);
      case Kind::kill:
        return self->request(registry_, caf::infinite, kill_atom::value, about).then(answer, error);
      case Kind::survey:
        return self->request(registry_, caf::infinite, survey_atom::value)
            .then(
                [this, number](const Survey& survey) {
                  requests_[number].done = true;
                  survey_answered(*survey.processes);
                },
                error);
    }
  };
  caf::anon_send(caller_, supervisor::run_atom::value, supervisor::Completion{std::make_shared<std::function<void()>>(std::move(work))});
}

void ExecWorld::answered(std::size_t number, const Answer& answer) {
  auto& request = requests_[number];
  request.done = true;
  const auto* refused = std::get_if<boundary::Error>(&answer.response);
  const auto known = processes_.find(request.subject);
  switch (request.kind) {
    case Kind::exec:
      return exec_answered(request, answer);
    case Kind::wait:
      if (const auto* exited = std::get_if<boundary::Exited>(&answer.response)) {
        if (known == processes_.end() || !known->second.status || !(*known->second.status == exited->status))
          fail("wait", "a wait for " + request.subject + " was answered with a status that it does not have");
      } else if (refused != nullptr && known != processes_.end() && accepted_.contains(known->second.request_id)) {
        fail("wait", "the status of " + request.subject + " is not known any more: " + refused->message);
      }
      break;
    case Kind::attach:
      if (answer.stream) {
        if (known->second.stream) fail("two attachments", request.subject + " has two attachments");
        if (request.abandoned) {
          answer.stream->start(std::make_shared<Call>());
          answer.stream->ended();
          io_.restart();
          io_.poll();
        } else {
          known->second.stream = answer.stream;
        }
      }
      break;
    default:
      break;
  }
}

void ExecWorld::exec_answered(const Request& request, const Answer& answer) {
  message("registry", "boundary",
          std::holds_alternative<boundary::ExecStarted>(answer.response) ? "started " + request.subject : "refused");
  const auto* started = std::get_if<boundary::ExecStarted>(&answer.response);
  if (started == nullptr) return;
  auto& process = processes_.at(started->process_id);
  process.told = true;
  if (process.request_id != request.subject) fail("other process", "the exec " + request.subject + " was answered with another's process");
  if (accepted_.at(request.subject) != request.digest)
    fail("other payload", "the exec " + request.subject + " was continued by a request with another payload");
  if (process.stream) fail("two attachments", started->process_id + " has two attachments");
  process.stream = answer.stream;
  if (request.abandoned) release(process);
}

void ExecWorld::survey_answered(const ProcessSurvey& survey) {
  if (survey.processes.size() > kRetained) fail("limit", "more processes are retained than the limit allows");
  for (const auto& [id, process] : processes_) {
    const bool listed =
        std::any_of(survey.processes.begin(), survey.processes.end(), [&](const auto& one) { return one.process_id == id; });
    if (over_ && listed) fail("retained", id + " has ended and is retained for ever");
    if (process.stream && !listed) fail("reclaimed", id + " was given up while somebody is attached");
    if (!process.status && !listed && process.told) fail("reclaimed", id + " was given up while it runs");
  }
}

/// The launcher comes to the end of its oldest order.
void ExecWorld::launch(bool succeeds) {
  auto launch = std::move(launches_.front());
  launches_.erase(launches_.begin());
  const auto& order = launch.order.order;
  const auto& id = order->request->envelope.request_id;
  if (!succeeds) {
    message("launcher", "registry", "cannot launch " + id);
    launch.promise.deliver(LaunchOutcome{nullptr, "no such program"});
    return;
  }
  ManagedProcess::Ends ends;
  ends.standard_input = nothing();
  ends.standard_output = nothing();
  ends.standard_error = nothing();
  auto made = ManagedProcess::create(io_, order->process_id, false, std::move(ends), {});
  if (processes_.contains(order->process_id)) fail("process id", order->process_id + " was given twice");
  processes_[order->process_id] = {made, order, id, std::nullopt, false, nullptr};
  message("launcher", "registry", "launched " + order->process_id);
  if (choices_.one_in(4)) {  // it is over before anybody hears that it began
    auto& process = processes_.at(order->process_id);
    process.status = boundary::ExitStatus{false, 0};
    made->exited(*process.status);
    order->on_exit(made);
  }
  launch.promise.deliver(LaunchOutcome{made, {}});
}

void ExecWorld::exit_process() {
  for (auto& [id, process] : processes_) {
    if (process.status) continue;
    process.status = boundary::ExitStatus{false, static_cast<std::int32_t>(choices_.below(4))};
    message("workload", "registry", id + " exits");
    process.process->exited(*process.status);
    process.order->on_exit(process.process);
    return;
  }
}

void ExecWorld::release(Process& process) {
  if (!process.stream) return;
  auto stream = std::exchange(process.stream, nullptr);
  stream->start(std::make_shared<Call>());
  stream->ended();
  io_.restart();
  io_.poll();
}

/// Nobody has anything to do: whoever is still not answered waits for a launch or for an exit.
void ExecWorld::check_at_rest() {
  for (const auto& request : requests_) {
    if (request.done) continue;
    if (request.kind == Kind::wait) {
      const auto known = processes_.find(request.subject);
      if (known != processes_.end() && known->second.status)
        fail("wait", "a wait for " + request.subject + " is not answered though it has ended");
    } else if (request.kind != Kind::exec || launches_.empty()) {
      fail("held up", "a request about " + request.subject + " waits for nothing that it needs");
    }
  }
}

/// Everything has ended, nobody is attached, and the time for reclaiming is over, twice for those that were attached the first time.
void ExecWorld::check_nothing_retained() {
  for (auto& [id, process] : processes_) release(process);
  for (int i = 0; i < 2; ++i) {
    stage_.advance_to(stage_.now() + kReclaimAfter);
    stage_.run_all();
  }
  over_ = true;
  ask(Kind::survey, "all");
  stage_.run_all();
}

void ExecWorld::fail(std::string invariant, std::string what) {
  if (violation_) return;
  if (auto* chart = stage_.chart()) chart->note(stage_.chart_now(), "", "BROKEN: " + invariant + ": " + what);
  violation_ = Violation{std::move(invariant), std::move(what)};
}

void ExecWorld::message(const std::string& from, const std::string& to, const std::string& label) {
  if (auto* chart = stage_.chart()) chart->message(stage_.chart_now(), from, to, label);
}

}  // namespace openshell::model
