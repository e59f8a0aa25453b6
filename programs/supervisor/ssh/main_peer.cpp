#include "programs/supervisor/ssh/main_peer.hpp"

#include <absl/strings/str_cat.h>

#include <utility>

namespace openshell::supervisor {
namespace {

constexpr char kCtrlC = 0x03, kCtrlP = 0x10, kCtrlQ = 0x11;

}  // namespace

DetachFilter::Result DetachFilter::feed(std::string_view bytes) {
  Result result;
  for (const char c : bytes) {
    if (pending_ && c == kCtrlQ) {
      pending_ = false;
      result.detach = true;
      return result;
    }
    if (pending_) result.forward += kCtrlP;
    pending_ = c == kCtrlP;
    if (!pending_) result.forward += c;
  }
  return result;
}

std::shared_ptr<MainPeer> MainPeer::make(std::unique_ptr<MainFollower> follower, bool read_only, std::string line_end) {
  std::shared_ptr<MainPeer> peer{new MainPeer{std::move(follower), read_only, std::move(line_end)}};
  if (!read_only) {
    if (!peer->follower_->acquire_input().ok())
      peer->say("canonical main process already has an input owner; attached read-only; press Ctrl-C to exit");
  }
  return peer;
}

void MainPeer::say(const std::string& text) { give({PeerOutput::Kind::error_output, absl::StrCat("openshell: ", text, line_end_), 0}); }

void MainPeer::finish(int code) { give({PeerOutput::Kind::exit, {}, code}); }

void MainPeer::give(PeerOutput output) {
  ReadDone waiting;
  {
    const std::lock_guard lock{mutex_};
    if (finished_) return;
    finished_ = output.kind == PeerOutput::Kind::exit || output.kind == PeerOutput::Kind::broken;
    if (!waiting_) {
      ready_.push_back(std::move(output));
      return;
    }
    waiting = std::exchange(waiting_, nullptr);
  }
  waiting(std::move(output));
}

void MainPeer::read(ReadDone done) {
  bool ask = false;
  {
    std::unique_lock lock{mutex_};
    if (!ready_.empty()) {
      auto output = std::move(ready_.front());
      ready_.pop_front();
      lock.unlock();
      return done(std::move(output));
    }
    waiting_ = std::move(done);
    ask = !finished_ && !std::exchange(reading_, true);
  }
  if (ask) follower_->read([self = shared_from_this()](absl::StatusOr<ProcessOutput> output) { self->from_main(std::move(output)); });
}

void MainPeer::from_main(absl::StatusOr<ProcessOutput> output) {
  {
    const std::lock_guard lock{mutex_};
    reading_ = false;
  }
  if (!output.ok()) {
    if (absl::IsDataLoss(output.status())) {
      say(absl::StrCat("attachment ", output.status().message(), "; reconnect for buffered output"));
    } else if (absl::IsCancelled(output.status()) || absl::IsOutOfRange(output.status())) {
      return finish(0);
    }
    return give({PeerOutput::Kind::broken, {}, 0});
  }
  switch (output->kind) {
    case ProcessOutput::Kind::standard_output:
      return give({PeerOutput::Kind::output, std::move(output->bytes), 0});
    case ProcessOutput::Kind::standard_error:
      return give({PeerOutput::Kind::error_output, std::move(output->bytes), 0});
    case ProcessOutput::Kind::exit:
      return finish(output->code < 0 ? 0 : output->code);
  }
}

void MainPeer::write(std::string bytes, WriteDone done) {
  if (!follower_->owns_input()) {
    const bool taken = !read_only_ && follower_->acquire_input().ok();
    if (!taken) {
      if (bytes.find(kCtrlC) != std::string::npos) finish(0);
      return done(absl::OkStatus());  // what a viewer types is lost
    }
    say("input enabled");
  }
  auto typed = filter_.feed(bytes);
  if (typed.forward.empty()) {
    if (typed.detach) detach();
    return done(absl::OkStatus());
  }
  follower_->write(std::move(typed.forward),
                   [self = shared_from_this(), leave = typed.detach, done = std::move(done)](const absl::Status& status) mutable {
                     if (!status.ok()) {
                       self->say(absl::StrCat(status.message(), "; closing attachment"));
                       self->give({PeerOutput::Kind::broken, {}, 0});
                     } else if (leave) {
                       self->detach();
                     }
                     done(absl::OkStatus());
                   });
}

void MainPeer::detach() {
  follower_->release_input();
  finish(0);
}

void MainPeer::close_input() { follower_->release_input(); }
void MainPeer::resize(std::uint32_t columns, std::uint32_t rows) { follower_->resize(columns, rows); }
void MainPeer::signal(boundary::ProcessSignal signal) { follower_->signal(signal); }

void MainPeer::close() {
  follower_->detach();
  finish(0);
}

}  // namespace openshell::supervisor
