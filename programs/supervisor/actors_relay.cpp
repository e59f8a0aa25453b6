#include "programs/supervisor/actors_relay.hpp"

#include <spdlog/spdlog.h>

#include <utility>

#include "actors/introspection/shown_text.hpp"

namespace openshell::supervisor {
namespace {

constexpr std::size_t kFrameOverhead = 256;    // of a snapshot besides its actors, notes excluded
constexpr std::size_t kRuntimeShare = 65'536;  // of a snapshot: what the sandbox says may not push out what the supervisor says
constexpr std::size_t kMaxUnsent = 2;          // a snapshot and an answer

}  // namespace

void ActorsRelay::post(std::function<void()> work) {
  serial_.post([self = shared_from_this(), work = std::move(work)] { work(); });
}

void ActorsRelay::run() {
  timers_->after(limits_.watch_deadline, [weak = weak_from_this()] {
    if (auto self = weak.lock()) {
      self->post([self] {
        if (!self->watching_) self->close();
      });
    }
  });
  post([this] { read(); });
}

void ActorsRelay::abort() {
  post([this] { close(); });
}

void ActorsRelay::read() {
  if (closed_) return;
  relay_->read([self = shared_from_this()](absl::StatusOr<std::string> bytes) {
    auto held = std::make_shared<absl::StatusOr<std::string>>(std::move(bytes));
    self->post([self, held] { self->received(std::move(*held)); });
  });
}

void ActorsRelay::received(absl::StatusOr<std::string> bytes) {
  if (closed_) return;
  if (!bytes.ok() || bytes->empty()) return close();
  if (!in_.append(*bytes).ok()) return close();
  while (auto message = in_.next()) {
    actors_wire::ToSupervisor decoded;
    if (!decoded.ParseFromString(*message) || !take(decoded)) {
      spdlog::warn("an actor relay ended: the gateway sent what is no request");
      return close();
    }
  }
  read();
}

bool ActorsRelay::take(const actors_wire::ToSupervisor& message) {
  if (message.has_watch()) {
    if (std::exchange(watching_, true)) return false;
    want_runtime_ = message.watch().sandbox_runtime();
    tick();
    return true;
  }
  if (!message.has_inspect() || !watching_) return false;
  inspect(message.inspect());
  return true;
}

// ---- one actor that a person opened

void ActorsRelay::inspect(const actors_wire::Inspect& request) {
  const auto now = std::chrono::steady_clock::now();
  if (request.process() != actors_wire::Process::SUPERVISOR)
    return inspected(request.request(), absl::InvalidArgumentError("only the supervisor's actors are asked"));
  if (inspecting_ || (last_inspect_ != Time{} && now - last_inspect_ < limits_.pace))
    return inspected(request.request(), absl::ResourceExhaustedError("one actor at a time, one a second"));
  inspecting_ = true;
  last_inspect_ = now;
  sources_.inquire(request.actor().substr(0, kMaxShownId),
                   [self = shared_from_this(), number = request.request()](absl::StatusOr<ActorSnapshot> answer) {
                     self->post([self, number, answer = std::move(answer)] {
                       self->inspecting_ = false;
                       self->inspected(number, answer);
                     });
                   });
}

void ActorsRelay::inspected(std::uint64_t request, const absl::StatusOr<ActorSnapshot>& answer) {
  actors_wire::ToGateway message;
  auto& out = *message.mutable_inspected();
  out.set_request(request);
  if (answer.ok()) {
    fill_actor(*answer, *out.mutable_actor());
  } else {
    out.set_error(shown_text(std::string{answer.status().message()}));
  }
  send(encode_actors_frame(message));
}

// ---- snapshots

void ActorsRelay::tick() {
  if (closed_) return;
  timers_->after(limits_.pace, [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->post([self] { self->tick(); });
  });
  ask_runtime();
  if (!out_.empty()) return;  // the reader is slow: the next one it gets is made when it is ready
  sources_.actors([self = shared_from_this()](absl::StatusOr<ActorChanges> all) {
    auto held = std::make_shared<absl::StatusOr<ActorChanges>>(std::move(all));
    self->post([self, held] { self->changed(std::move(*held)); });
  });
}

void ActorsRelay::ask_runtime() {
  if (!want_runtime_ || std::exchange(runtime_asked_, true)) return;
  sources_.runtime([self = shared_from_this()](absl::StatusOr<ActorSources::Runtime> answer) {
    auto held = std::make_shared<absl::StatusOr<ActorSources::Runtime>>(std::move(answer));
    self->post([self, held] {
      self->runtime_asked_ = false;
      if (held->ok()) {
        self->runtime_ = std::move(**held);
        self->runtime_at_ = std::chrono::steady_clock::now();
        self->runtime_note_.clear();
      } else {
        self->runtime_note_ = shown_text(std::string{held->status().message()});
        if (absl::IsInvalidArgument(held->status())) {
          self->want_runtime_ = false;
          self->runtime_ = {};
          self->runtime_note_ = "introspection not offered by this boundary";
        }
      }
    });
  });
}

actors_wire::Process ActorsRelay::runtime_process() const {
  actors_wire::Process out;
  out.set_kind(actors_wire::Process::SANDBOX);
  if (runtime_at_ == Time{}) {
    out.set_note(runtime_note_);
    return out;
  }
  fill_process(runtime_.actors, kRuntimeShare, out);
  out.set_left_out(out.left_out() + runtime_.left_out);
  if (std::chrono::steady_clock::now() - runtime_at_ > limits_.stale_runtime)
    out.set_note(runtime_note_.empty() ? "no answer of the sandbox" : runtime_note_);
  return out;
}

void ActorsRelay::changed(absl::StatusOr<ActorChanges> all) {
  if (closed_ || !out_.empty()) return;
  if (!all.ok()) return close();
  actors_wire::ToGateway message;
  auto& snapshot = *message.mutable_snapshot();
  auto& own = *snapshot.add_processes();
  own.set_kind(actors_wire::Process::SUPERVISOR);
  auto runtime = runtime_process();
  fill_process(all->actors, kMaxActorsMessage - kRuntimeShare - kFrameOverhead - 2 * kMaxShownText, own);
  *snapshot.add_processes() = std::move(runtime);
  const auto now = std::chrono::steady_clock::now();
  auto shown = snapshot.SerializeAsString();
  if (shown == shown_) {
    if (now - last_sent_ < limits_.sign_of_life) return;
    snapshot.clear_processes();
  } else {
    shown_ = std::move(shown);
    ++seq_;
    if (runtime_at_ != Time{})
      snapshot.mutable_processes(1)->set_stale_ms(
          static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now - runtime_at_).count()));
  }
  snapshot.set_epoch(sources_.epoch);
  snapshot.set_seq(seq_);
  last_sent_ = now;
  send(encode_actors_frame(message));
}

void ActorsRelay::send(std::string frame) {
  if (closed_ || out_.size() >= kMaxUnsent) return;
  out_.push_back(std::move(frame));
  if (out_.size() == 1) write();
}

void ActorsRelay::write() {
  relay_->write(out_.front(), [self = shared_from_this()](const absl::Status& status) {
    self->post([self, status] {
      if (self->closed_) return;
      if (!status.ok()) return self->close();
      self->out_.pop_front();
      if (!self->out_.empty()) self->write();
    });
  });
}

void ActorsRelay::close() {
  if (std::exchange(closed_, true)) return;
  relay_->reset();
  if (auto ended = std::exchange(ended_, {})) ended();
}

}  // namespace openshell::supervisor
