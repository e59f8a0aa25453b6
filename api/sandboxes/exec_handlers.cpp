// Exec: checked here, run by the supervisor over a relay.
#include "api/sandboxes/exec_command.hpp"
#include "api/sandboxes/exec_session.hpp"
#include "api/sandboxes/plane.hpp"

namespace openshell::api {
namespace {

constexpr const char* kService = "openshell.exec/1";

/// One call of either kind, from the checks to the running session.
template <class In>
class ExecCall : public std::enable_shared_from_this<ExecCall<In>> {
 public:
  using Calls = Stream<In, pb::ExecSandboxEvent>;
  ExecCall(PlanePtr plane, Context ctx, Calls stream) : plane_{std::move(plane)}, ctx_{std::move(ctx)}, stream_{std::move(stream)} {}

  /// `running` gets the session once `start` was sent.
  void run(std::shared_ptr<const pb::ExecSandboxRequest> request, bool interactive,
           std::function<void(std::shared_ptr<ExecSession>)> running) {
    auto status = check_exec(*request);
    if (status.ok()) status = check_request_id(request->request_id());
    auto command = status.ok() ? assemble_command(*request) : absl::StatusOr<std::string>{status};
    if (!command.ok()) return stream_.finish(command.status());
    const auto failed = [self = this->shared_from_this()](const absl::Status& why) { self->stream_.finish(why); };
    with_sandbox(
        plane_, ctx_, request->workspace_scope(), request->sandbox(), "sandbox", WorkspaceRole::kUser,
        [self = this->shared_from_this(), request, command = *command, interactive, running,
         failed](const std::shared_ptr<SandboxHandle>& found) {
          ask<gateway::Outcome>(
              self->plane_->system, found->entity,
              [=](const gateway::Outcome& usable) {
                usable.status.ok() ? self->open(found->sandbox_id, request, command, interactive, running) : failed(usable.status);
              },
              gateway::usable_atom::value);
        },
        failed);
  }

 private:
  void open(const std::string& sandbox, std::shared_ptr<const pb::ExecSandboxRequest> request, const std::string& command, bool interactive,
            std::function<void(std::shared_ptr<ExecSession>)> running) {
    if (stream_.over()) return;
    gateway::RelayRequest relay;
    relay.sandbox_id = sandbox;
    relay.service_id = kService;
    ask<gateway::Handed<gateway::RelayEnd>>(
        plane_->system, plane_->actors.relays,
        [self = this->shared_from_this(), request, command, interactive, running](gateway::Handed<gateway::RelayEnd> opened) {
          if (!opened.value.ok()) {
            const auto& why = opened.value.status();
            return self->stream_.finish(
                absl::Status{why.code() == absl::StatusCode::kDeadlineExceeded ? why.code() : absl::StatusCode::kUnavailable,
                             cat("supervisor relay failed: ", to_std(why.message()))});
          }
          self->begin(*opened.value, request, command, interactive, running);
        },
        gateway::open_atom::value, relay);
  }

  void begin(std::shared_ptr<gateway::RelayEnd> end, std::shared_ptr<const pb::ExecSandboxRequest> request, const std::string& command,
             bool interactive, const std::function<void(std::shared_ptr<ExecSession>)>& running) {
    ExecSession::Caller caller;
    caller.send = [stream = stream_](const pb::ExecSandboxEvent& event, std::function<void(bool)> written) {
      stream.write(event, std::move(written));
    };
    caller.finish = [stream = stream_](const absl::Status& status) { stream.finish(status); };
    caller.after = [system = &plane_->system](std::chrono::milliseconds delay, std::function<void()> work) {
      after(*system, delay, std::move(work));
    };
    caller.timed_out = [stream = stream_] { stream.leave_unresolved(); };
    auto session = std::make_shared<ExecSession>(std::move(end), std::move(caller));
    session->start(*request, command, storage::new_uuid(), interactive);
    stream_.on_done([session] { session->cancel(); });  // nothing is left to cancel where it ended well
    running(session);
  }

  PlanePtr plane_;
  Context ctx_;
  Calls stream_;
};

/// Input of an interactive call, read only as fast as the process takes it.
void pump_input(const Stream<pb::ExecSandboxInput, pb::ExecSandboxEvent>& stream, const std::shared_ptr<ExecSession>& session) {
  stream.read([stream, session](std::optional<pb::ExecSandboxInput> input) {
    if (!input) return session->stdin_end();
    if (input->has_stdin() && !input->stdin().empty()) {
      return session->stdin_bytes(std::move(*input->mutable_stdin()), [stream, session] { pump_input(stream, session); });
    }
    if (input->has_resize()) session->resize(input->resize().cols(), input->resize().rows());
    pump_input(stream, session);
  });
}

}  // namespace

void add_exec_handlers(Router& router, const PlanePtr& plane) {
  router.server_stream<pb::ExecSandboxRequest, pb::ExecSandboxEvent>(
      "ExecSandbox", [=](Context ctx, pb::ExecSandboxRequest request, Stream<Nothing, pb::ExecSandboxEvent> stream) {
        std::make_shared<ExecCall<Nothing>>(plane, std::move(ctx), std::move(stream))
            ->run(std::make_shared<const pb::ExecSandboxRequest>(std::move(request)), false, [](const std::shared_ptr<ExecSession>&) {});
      });
  router.bidi<pb::ExecSandboxInput, pb::ExecSandboxEvent>(
      "ExecSandboxInteractive", [=](Context ctx, Stream<pb::ExecSandboxInput, pb::ExecSandboxEvent> stream) {
        stream.read([=](std::optional<pb::ExecSandboxInput> first) {
          if (!first) return stream.finish(absl::InvalidArgumentError("empty stream: expected start message"));
          if (!first->has_start()) return stream.finish(absl::InvalidArgumentError("first message must be a start payload"));
          std::make_shared<ExecCall<pb::ExecSandboxInput>>(plane, ctx, stream)
              ->run(std::make_shared<const pb::ExecSandboxRequest>(std::move(*first->mutable_start())), true,
                    [stream](const std::shared_ptr<ExecSession>& session) { pump_input(stream, session); });
        });
      });
}

}  // namespace openshell::api
