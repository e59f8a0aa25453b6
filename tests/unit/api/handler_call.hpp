// Calls a registered handler without gRPC: one request in, the answer out, waited for.
#pragma once

#include <future>
#include <string>

#include "api/handlers.hpp"

namespace openshell::api {

class OneCall final : public internal::Call {
 public:
  explicit OneCall(std::string request) : request_{std::move(request)} {}
  void read(std::shared_ptr<google::protobuf::MessageLite> into, std::function<void(bool)> then) override {
    then(into->ParseFromString(request_));
  }
  void write(const google::protobuf::MessageLite&, std::function<void(bool)>) override {}
  void finish(absl::Status end, const google::protobuf::MessageLite* last) override {
    if (over_.exchange(true)) return;
    status = std::move(end);
    if (last != nullptr) bytes = last->SerializeAsString();
    ended.set_value();
  }
  void on_done(std::function<void()>) override {}
  std::size_t queued_bytes() const override { return 0; }
  bool over() const override { return over_; }
  absl::Status status;
  std::string bytes;
  std::promise<void> ended;

 private:
  std::string request_;
  std::atomic<bool> over_{false};
};

/// A caller: platform admin without roles configured, or somebody with a role where they are.
struct As {
  std::string subject = "alice";
  bool rbac = false;
  bool admin = false;
};

template <class Response, class Request>
absl::StatusOr<Response> call(const Router& router, const std::string& method, const Request& request, const As& as = {}) {
  auto ctx = std::make_shared<CallContext>();
  ctx->method = method;
  ctx->rbac = as.rbac;
  ctx->admin_role = "openshell-admin";
  Identity identity;
  identity.subject = as.subject;
  if (as.admin) identity.roles.push_back("openshell-admin");
  ctx->principal = User{identity};
  auto one = std::make_shared<OneCall>(request.SerializeAsString());
  (*router.find(method))(ctx, one);
  one->ended.get_future().get();
  if (!one->status.ok()) return one->status;
  Response response;
  if (!response.ParseFromString(one->bytes)) return absl::InternalError("answer does not parse");
  return response;
}

}  // namespace openshell::api
