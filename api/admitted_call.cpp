#include "api/admitted_call.hpp"

#include <google/protobuf/message.h>

#include "admissions.pb.h"
#include "api/answer_record.hpp"
#include "api/errors.hpp"
#include "api/workspace_scope.hpp"
#include "observability/log.hpp"
#include "observability/text.hpp"

namespace openshell::api {
namespace {

using google::protobuf::Message;
using google::protobuf::MessageLite;

class AdmittedCall final : public internal::Call, public std::enable_shared_from_this<AdmittedCall> {
 public:
  AdmittedCall(std::shared_ptr<internal::Call> inner, Context ctx, const MethodRule* rule, const CoveredMethod& method,
               std::shared_ptr<Admissions> admissions, const Router& router)
      : inner_{std::move(inner)}, ctx_{std::move(ctx)}, rule_{rule}, method_{method}, admissions_{std::move(admissions)}, router_{router} {}

  void read(std::shared_ptr<MessageLite> into, std::function<void(bool)> then) override {
    if (first_.exchange(false)) {
      auto* message = into.get();
      inner_->read(std::move(into), [self = shared_from_this(), message, then = std::move(then)](bool got) {
        got ? self->decide(*message, then) : then(false);
      });
      return;
    }
    inner_->read(std::move(into), std::move(then));
  }
  void write(const MessageLite& message, std::function<void(bool)> then) override { inner_->write(message, std::move(then)); }
  void finish(absl::Status status, const MessageLite* last) override;
  void on_done(std::function<void()> callback) override {
    {
      const std::lock_guard lock{mutex_};
      if (state_ == State::kDetached) {
        done_callbacks_.push_back(std::move(callback));
        return;
      }
    }
    inner_->on_done(std::move(callback));
  }
  std::size_t queued_bytes() const override { return inner_->queued_bytes(); }
  bool over() const override {
    {
      const std::lock_guard lock{mutex_};
      if (state_ == State::kDetached) return false;
    }
    return inner_->over();
  }
  void leave_unresolved() override { unresolved_ = true; }

 private:
  enum class State {
    kOpen,      // no request_id, or not yet known: everything passes through
    kDeciding,  // the handler does not run; what dies of its handles says nothing
    kDetached,  // unary work that was admitted
    kFenced,    // an exec that was admitted
    kClosed,    // answered
  };

  void decide(MessageLite& message, const std::function<void(bool)>& then);
  void decided(absl::StatusOr<Admissions::Verdict> verdict, const std::function<void(bool)>& then);
  absl::StatusOr<Claim> claim_of(Message& part, const std::string& id) const;
  void replay(const Admissions::Record& record);
  void complete(std::function<void(Admissions::Record&)> fill, std::function<void()> answer);
  /// Ends the call itself; what the handler says later does not count.
  void answer(const absl::Status& status, const MessageLite* last = nullptr);
  void enter(State state) {
    const std::lock_guard lock{mutex_};
    state_ = state;
  }

  std::shared_ptr<internal::Call> inner_;
  Context ctx_;
  const MethodRule* rule_;
  const CoveredMethod& method_;
  std::shared_ptr<Admissions> admissions_;
  const Router& router_;
  std::atomic<bool> first_{true};
  std::atomic<bool> unresolved_{false};
  mutable std::mutex mutex_;
  State state_ = State::kOpen;
  Admissions::Ticket ticket_;  // set before kDetached and kFenced
  Admissions::Permit permit_;  // held while work runs detached
  std::vector<std::function<void()>> done_callbacks_;
};

void AdmittedCall::answer(const absl::Status& status, const MessageLite* last) {
  enter(State::kClosed);
  permit_.reset();
  inner_->finish(status, last);
}

absl::StatusOr<Claim> AdmittedCall::claim_of(Message& part, const std::string& id) const {
  const auto* identity = ctx_->identity();
  if (identity == nullptr) return absl::PermissionDeniedError("request admission requires a user principal");
  auto scope = scope_of(method_.name, part);
  if (!scope.ok()) return scope.status();
  if (method_.secret && admissions_->key() == nullptr)
    return replay_unavailable("the gateway has no key to protect its record; no work was started");
  const auto* key = method_.secret ? admissions_->key() : nullptr;
  Claim claim;
  claim.ctx = ctx_;
  claim.method = method_.name;
  claim.unary = method_.unary;
  claim.role = rule_ == nullptr ? std::nullopt : rule_->workspace_role;
  claim.scope = *std::move(scope);
  if (method_.unary) claim.sandbox = sandbox_of(method_.name, part);
  claim.caller = caller_hash(*identity);
  claim.key = admission_key(claim.caller, method_.name, claim.scope.workspace, id);
  claim.fingerprint = fingerprint(part, key);
  if (key != nullptr) claim.key_id = key->id();
  return claim;
}

void AdmittedCall::decide(MessageLite& message, const std::function<void(bool)>& then) {
  auto* request = dynamic_cast<Message*>(&message);
  auto* part = request == nullptr ? nullptr : identified_part(*request);
  const std::string id = part == nullptr ? std::string{} : request_id_of(*part);
  if (id.empty()) return then(true);
  enter(State::kDeciding);
  if (auto status = check_request_id(id); !status.ok()) return answer(status);
  if (ctx_->sandbox() != nullptr) {
    enter(State::kOpen);
    return then(true);
  }
  auto claim = claim_of(*part, id);
  if (!claim.ok()) return answer(claim.status());
  permit_ = admissions_->permit();
  if (!permit_) return answer(absl::ResourceExhaustedError("mutation admission workers are busy; no work was started by this call"));
  admissions_->admit(*std::move(claim), [self = shared_from_this(), then](absl::StatusOr<Admissions::Verdict> verdict) {
    self->decided(std::move(verdict), then);
  });
}

void AdmittedCall::decided(absl::StatusOr<Admissions::Verdict> verdict, const std::function<void(bool)>& then) {
  if (!verdict.ok()) return answer(verdict.status());
  if (const auto* record = std::get_if<std::shared_ptr<const Admissions::Record>>(&*verdict)) return replay(**record);
  ticket_ = std::move(std::get<Admissions::Ticket>(*verdict));
  if (!method_.unary) permit_.reset();  // it does not run detached
  enter(method_.unary ? State::kDetached : State::kFenced);
  then(true);
}

void AdmittedCall::replay(const Admissions::Record& record) {
  rebuild_answer(method_, record, ctx_, router_, [self = shared_from_this()](absl::StatusOr<std::shared_ptr<Message>> rebuilt) {
    if (!rebuilt.ok()) return self->answer(rebuilt.status());
    self->inner_->mark_replayed();
    self->answer(absl::OkStatus(), rebuilt->get());
  });
}

void AdmittedCall::complete(std::function<void(Admissions::Record&)> fill, std::function<void()> answer) {
  admissions_->complete(ticket_, std::move(fill), [method = method_.name, answer = std::move(answer)](const absl::Status& recorded) {
    if (!recorded.ok())
      log::warning("the outcome of a request could not be recorded; a repetition will be refused",
                   {{"method", method}, {"why", std::string{to_std(recorded.message())}}});
    answer();
  });
}

void AdmittedCall::finish(absl::Status status, const MessageLite* last) {
  std::unique_lock lock{mutex_};
  const State state = state_;
  if (state == State::kDeciding || state == State::kClosed) return;
  if (state == State::kOpen) {
    lock.unlock();
    return inner_->finish(std::move(status), last);
  }
  state_ = State::kClosed;
  const auto callbacks = std::exchange(done_callbacks_, {});
  lock.unlock();
  auto self = shared_from_this();
  const std::shared_ptr<Message> kept{dynamic_cast<const Message*>(last) == nullptr ? nullptr : dynamic_cast<const Message*>(last)->New()};
  if (kept) kept->CheckTypeAndMergeFrom(*last);
  const auto end = [self, status, kept, callbacks] {
    self->permit_.reset();
    self->inner_->finish(status, kept.get());
    for (const auto& callback : callbacks) callback();
  };
  if (state == State::kDetached) {
    if (!status.ok() || !kept) return end();
    return complete([kept](Admissions::Record& record) { record_answer(*kept, record); }, end);
  }
  // An exec that broke for another reason than its caller may still run for all we know.
  const bool ended = (status.ok() || inner_->over()) && !unresolved_;
  if (!ended) return end();
  complete([](Admissions::Record&) {}, end);
}

}  // namespace

std::shared_ptr<internal::Call> admitted(std::shared_ptr<internal::Call> call, const Context& ctx, const MethodRule* rule,
                                         std::shared_ptr<Admissions> admissions, const Router* router) {
  const auto* method = admissions == nullptr ? nullptr : admissions->find(ctx->method);
  if (method == nullptr) return call;
  return std::make_shared<AdmittedCall>(std::move(call), ctx, rule, *method, std::move(admissions), *router);
}

}  // namespace openshell::api
