#include "api/faulty_call.hpp"

#include <atomic>

#include "observability/fault_point.hpp"

namespace openshell::api {
namespace {

using google::protobuf::MessageLite;

absl::Status lost() { return absl::UnavailableError("the call was lost on purpose, by a fault point"); }

class FaultyCall final : public internal::Call {
 public:
  FaultyCall(std::shared_ptr<internal::Call> inner, std::string method) : inner_{std::move(inner)}, method_{std::move(method)} {}

  void read(std::shared_ptr<MessageLite> into, std::function<void(bool)> then) override { inner_->read(std::move(into), std::move(then)); }
  void write(const MessageLite& message, std::function<void(bool)> then) override { inner_->write(message, std::move(then)); }
  void finish(absl::Status status, const MessageLite* last) override {
    if (!answered_.exchange(true) && fault::point("rpc", method_, "answer")) return inner_->finish(lost(), nullptr);
    inner_->finish(std::move(status), last);
  }
  void on_done(std::function<void()> callback) override { inner_->on_done(std::move(callback)); }
  std::size_t queued_bytes() const override { return inner_->queued_bytes(); }
  bool over() const override { return inner_->over(); }
  void mark_replayed() override { inner_->mark_replayed(); }
  void leave_unresolved() override { inner_->leave_unresolved(); }

 private:
  std::shared_ptr<internal::Call> inner_;
  std::string method_;
  std::atomic<bool> answered_{false};  // only the first end counts
};

}  // namespace

std::shared_ptr<internal::Call> with_faults(std::shared_ptr<internal::Call> call, const std::string& method) {
  if (!fault::armed()) return call;
  if (fault::point("rpc", method, "begin")) {
    call->finish(lost(), nullptr);
    return nullptr;
  }
  return std::make_shared<FaultyCall>(std::move(call), method);
}

}  // namespace openshell::api
