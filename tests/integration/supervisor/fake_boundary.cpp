#include "tests/integration/supervisor/fake_boundary.hpp"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "boundary.grpc.pb.h"
#include "isolation/boundary/framing.hpp"
#include "pki/session.hpp"

namespace openshell::supervisor::test {
namespace {

using namespace std::chrono_literals;
namespace wire = sandbox::protocol::v1;
using Stream = grpc::ServerReaderWriter<wire::BoundaryChunk, wire::BoundaryChunk>;

constexpr auto kPatience = 20s;

bool send(Stream* stream, const std::string& bytes) {
  wire::BoundaryChunk chunk;
  for (std::size_t at = 0; at < bytes.size(); at += boundary::kMaxChunkBytes) {
    chunk.set_data(bytes.substr(at, boundary::kMaxChunkBytes));
    if (!stream->Write(chunk)) return false;
  }
  return true;
}

std::string question_for(const std::string& name) {
  std::string message("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", 12);
  std::size_t start = 0;
  while (start < name.size()) {
    auto dot = name.find('.', start);
    if (dot == std::string::npos) dot = name.size();
    message += static_cast<char>(dot - start);
    message += name.substr(start, dot - start);
    start = dot + 1;
  }
  return message + std::string("\0\0\x01\0\x01", 5);
}

}  // namespace

struct FakeBoundary::State final : wire::IsolationBoundary::Service {
  struct PendingOpen {
    boundary::NetworkConnected open;
    std::string bytes;
    std::shared_ptr<OpenResult> result;
    bool done = false;
  };

  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  std::vector<std::string> operations;
  std::optional<boundary::StartAgent> started;
  std::vector<boundary::Exec> execs;
  std::optional<int> main_code;
  std::vector<std::string> main_frames;  // of its whole life, by sequence
  std::uint64_t main_first = 0;          // the oldest one retained
  std::optional<int> main_end;
  std::string main_heard;
  std::size_t main_sent = 0;
  std::uint64_t main_cuts = 0;
  std::string instance_id;
  std::deque<std::shared_ptr<PendingOpen>> opens;
  std::deque<std::string> questions;
  std::map<std::uint64_t, std::string> answers;
  std::uint64_t next_question = 1;
  std::atomic<bool> closing{false};
  FakeBoundary* owner = nullptr;
  std::unique_ptr<grpc::Server> server;

  void note(const std::string& operation) {
    const std::lock_guard lock{mutex};
    operations.push_back(operation);
    changed.notify_all();
  }

  boundary::Confirmation confirmation() {
    boundary::Confirmation out;
    const auto& descriptor = owner->descriptor();
    out.generation = descriptor.generation;
    out.identity = descriptor.workload_identity;
    out.session_id = descriptor.session_id;
    out.outer_fence = descriptor.outer_fence;
    out.resource_claims = descriptor.resource_claims;
    out.runtime_exit_terminates_workload = true;
    {
      const std::lock_guard lock{mutex};
      out.authenticated_supervisor = instance_id;
    }
    boundary::BackendAudit audit;
    audit.no_new_privileges = true;
    audit.sandbox_dumpable = false;
    audit.child_dumpable = true;
    audit.core_limit_zero = true;
    audit.native_architecture = "x86_64";
    audit.kernel_release = "6.12";
    audit.seccomp = {true, true, true, true, true, true, true, true, true, true};
    audit.landlock_abi = 7;
    audit.landlock_allow_deny = audit.udp_dns_round_trip = audit.tcp_dns_round_trip = audit.tcp_allow_round_trip =
        audit.tcp_deny_round_trip = true;
    out.properties = *boundary::properties_of(audit);
    out.backend_audit = audit;
    return out;
  }

  grpc::Status Exchange(grpc::ServerContext* context, Stream* stream) override {
    const auto bearer = context->client_metadata().find("authorization");
    if (bearer == context->client_metadata().end() || bearer->second != "Bearer sandbox-token")
      return {grpc::StatusCode::UNAUTHENTICATED, "bearer"};
    boundary::ControlFrameDecoder decoder;
    wire::BoundaryChunk chunk;
    std::optional<std::string> frame;
    while (!(frame = decoder.next())) {
      if (!stream->Read(&chunk)) return grpc::Status::OK;
      if (!decoder.append(chunk.data()).ok()) return {grpc::StatusCode::INVALID_ARGUMENT, "frame"};
    }
    auto request = boundary::decode_request(*frame);
    const auto* envelope = std::get_if<boundary::RequestEnvelope>(&request);
    if (!envelope) return {grpc::StatusCode::INVALID_ARGUMENT, "request"};
    note(std::string{boundary::operation_name(envelope->request)});
    const auto answer = [&](const boundary::Response& response) {
      return send(stream, boundary::encode_control_frame(boundary::encode_response(envelope->request_id, response)));
    };
    return serve(context, stream, envelope->request, answer);
  }

  template <class Answer>
  grpc::Status serve(grpc::ServerContext* context, Stream* stream, const boundary::Request& request, Answer answer) {
    if (std::holds_alternative<boundary::DiscoverPolicy>(request)) {
      answer(boundary::ImagePolicy{owner->image_policy, false});
    } else if (const auto* attach = std::get_if<boundary::Attach>(&request)) {
      {
        const std::lock_guard lock{mutex};
        instance_id = attach->supervisor_instance_id;
      }
      if (owner->attach_error) {
        answer(*owner->attach_error);
      } else {
        answer(boundary::Attached{{owner->descriptor().generation, {main_summary()}}});
      }
    } else if (std::holds_alternative<boundary::Confirm>(request)) {
      auto claim = confirmation();
      if (owner->distort) owner->distort(claim);
      answer(boundary::Confirmed{std::move(claim)});
    } else if (const auto* start = std::get_if<boundary::StartAgent>(&request)) {
      {
        const std::lock_guard lock{mutex};
        started = *start;
      }
      answer(boundary::Started{owner->descriptor().generation + ":main:0", start->provider_env_revision, 0});
    } else if (const auto* update = std::get_if<boundary::UpdateProviderEnvironment>(&request)) {
      answer(boundary::ProviderEnvironmentUpdated{update->revision, update->generation, true});
    } else if (std::holds_alternative<boundary::Wait>(request)) {
      std::unique_lock lock{mutex};
      while (!main_code && !closing && !context->IsCancelled()) changed.wait_for(lock, 50ms);
      if (!main_code) return {grpc::StatusCode::UNAVAILABLE, "closing"};
      const boundary::ExitStatus status{false, *main_code};
      lock.unlock();
      answer(boundary::Exited{status});
    } else if (std::holds_alternative<boundary::Signal>(request)) {
      {
        const std::lock_guard lock{mutex};
        if (!main_code) main_code = 0;
        changed.notify_all();
      }
      answer(boundary::Signaled{});
    } else if (std::holds_alternative<boundary::Terminate>(request)) {
      answer(boundary::Terminated{});
    } else if (std::holds_alternative<boundary::TerminateBoundary>(request)) {
      answer(boundary::BoundaryTerminated{});
    } else if (std::holds_alternative<boundary::AttachProcess>(request)) {
      return follow_main(context, stream, answer);
    } else if (std::holds_alternative<boundary::Resize>(request)) {
      answer(boundary::Resized{});
    } else if (const auto* exec = std::get_if<boundary::Exec>(&request)) {
      return run_exec(stream, *exec, answer);
    } else if (std::holds_alternative<boundary::AcceptNetwork>(request)) {
      return accept(context, stream, answer);
    } else {
      answer(boundary::Error{boundary::ErrorKind::invalid, "not scripted"});
    }
    return grpc::Status::OK;
  }

  boundary::ProcessSummary main_summary() {
    const std::lock_guard lock{mutex};
    return {owner->descriptor().generation + ":main:0", true, false, std::nullopt, {main_first, main_frames.size(), main_first != 0}};
  }

  template <class Answer>
  grpc::Status follow_main(grpc::ServerContext* context, Stream* stream, Answer answer) {
    answer(boundary::ProcessAttached{false});
    std::atomic<bool> over{false};
    std::thread reader{[&] {
      boundary::ProcessFrameDecoder decoder;
      wire::BoundaryChunk chunk;
      while (true) {
        while (!owner->main_reads && !over) std::this_thread::sleep_for(5ms);
        if (!stream->Read(&chunk) || !decoder.append(chunk.data()).ok()) return;
        while (auto frame = decoder.next()) {
          const std::lock_guard lock{mutex};
          if (frame->channel == boundary::Channel::stdin_data) main_heard += frame->payload;
          changed.notify_all();
        }
      }
    }};
    std::unique_lock lock{mutex};
    const auto cuts = main_cuts;
    auto next = main_first;
    while (!closing && !context->IsCancelled() && main_cuts == cuts) {
      if (next < main_frames.size()) {
        const auto frame = main_frames[next++];
        lock.unlock();
        send(stream, frame);
        lock.lock();
        ++main_sent;
      } else if (main_end) {
        const auto frame = boundary::encode_process_frame(boundary::Channel::exit_status, boundary::encode_exit_status({false, *main_end}));
        lock.unlock();
        send(stream, frame);
        lock.lock();
        break;
      } else {
        changed.wait_for(lock, 20ms);
      }
    }
    const bool cut = main_cuts != cuts;
    lock.unlock();
    over = true;
    if (!cut) {  // until the client has read the end
      while (!context->IsCancelled() && !closing) std::this_thread::sleep_for(5ms);
    }
    context->TryCancel();
    reader.join();
    return cut ? grpc::Status{grpc::StatusCode::UNAVAILABLE, "cut"} : grpc::Status::OK;
  }

  /// "cat" gives back its stdin; "hang" runs until it is ended; anything else prints its command and exits 7.
  template <class Answer>
  grpc::Status run_exec(Stream* stream, const boundary::Exec& exec, Answer answer) {
    std::size_t number;
    {
      const std::lock_guard lock{mutex};
      execs.push_back(exec);
      number = execs.size();
    }
    answer(boundary::ExecStarted{owner->descriptor().generation + ":exec:" + std::to_string(number), exec.spec.pty});
    const std::string command = exec.spec.shell->command.value_or("");
    const auto finish = [&](int code) {
      send(stream, boundary::encode_process_frame(boundary::Channel::exit_status, boundary::encode_exit_status({false, code})));
      return grpc::Status::OK;
    };
    if (command != "cat" && command != "hang") {
      send(stream, boundary::encode_process_frame(boundary::Channel::stdout_data, command));
      send(stream, boundary::encode_process_frame(boundary::Channel::stderr_data, "err"));
      return finish(7);
    }
    boundary::ProcessFrameDecoder decoder;
    wire::BoundaryChunk chunk;
    while (stream->Read(&chunk)) {
      if (!decoder.append(chunk.data()).ok()) break;
      while (auto frame = decoder.next()) {
        if (frame->channel == boundary::Channel::stdin_closed && command == "cat") return finish(0);
        if (frame->channel == boundary::Channel::stdin_data)
          send(stream, boundary::encode_process_frame(boundary::Channel::stdout_data, frame->payload));
      }
    }
    return grpc::Status::OK;
  }

  template <class Answer>
  grpc::Status accept(grpc::ServerContext* context, Stream* stream, Answer answer) {
    std::shared_ptr<PendingOpen> open;
    {
      std::unique_lock lock{mutex};
      while (opens.empty() && !closing && !context->IsCancelled()) changed.wait_for(lock, 20ms);
      if (opens.empty()) return {grpc::StatusCode::UNAVAILABLE, "closing"};
      open = opens.front();
      opens.pop_front();
    }
    OpenResult result;
    if (answer(open->open)) converse(stream, *open, result);
    const std::lock_guard lock{mutex};
    *open->result = result;
    open->done = true;
    changed.notify_all();
    return grpc::Status::OK;
  }

  void converse(Stream* stream, const PendingOpen& open, OpenResult& result) {
    boundary::ProcessFrameDecoder decoder;
    wire::BoundaryChunk chunk;
    std::optional<boundary::ProcessFrame> frame;
    while (!(frame = decoder.next())) {
      if (!stream->Read(&chunk) || !decoder.append(chunk.data()).ok()) return;
    }
    result.decision = *boundary::decode_open_decision(frame->payload);
    if (result.decision != boundary::OpenDecision::relay_ready) return;
    result.received = decoder.take_rest();
    send(stream, open.bytes);
    stream->Write(wire::BoundaryChunk{});  // the workload ended its direction
    while (stream->Read(&chunk)) result.received += chunk.data();
  }

  grpc::Status Mediate(grpc::ServerContext* context, Stream* stream) override {
    boundary::ControlFrameDecoder decoder;
    wire::BoundaryChunk chunk;
    std::optional<std::string> frame;
    while (!(frame = decoder.next())) {
      if (!stream->Read(&chunk) || !decoder.append(chunk.data()).ok()) return grpc::Status::OK;
    }
    auto request = boundary::decode_request(*frame);
    const auto* envelope = std::get_if<boundary::RequestEnvelope>(&request);
    if (!envelope) return {grpc::StatusCode::INVALID_ARGUMENT, "request"};
    note("open_mediation");
    send(stream, boundary::encode_control_frame(boundary::encode_response(envelope->request_id, boundary::MediationReady{})));
    std::thread reader{[&] {
      boundary::MediationFrameDecoder frames;
      wire::BoundaryChunk in;
      while (stream->Read(&in) && frames.append(in.data()).ok()) {
        while (auto got = frames.next()) {
          auto answer = boundary::decode_dns_answer(got->json);
          const std::lock_guard lock{mutex};
          answers[got->stream_id] = answer.ok() && std::holds_alternative<std::string>(*answer) ? std::get<std::string>(*answer) : "";
          changed.notify_all();
        }
      }
    }};
    std::unique_lock lock{mutex};
    while (!closing && !context->IsCancelled()) {
      changed.wait_for(lock, 20ms);
      while (!questions.empty()) {
        boundary::DnsQuestion question{
            questions.front(), false, boundary::FailedIdentity{"DNS sender identity is unavailable for kernel-driven socket writes"}, {}};
        questions.pop_front();
        const auto id = next_question++;
        lock.unlock();
        send(stream,
             boundary::encode_mediation_frame({boundary::MediationKind::dns_question, id, boundary::encode_dns_question(question)}));
        lock.lock();
      }
    }
    lock.unlock();
    context->TryCancel();
    reader.join();
    return grpc::Status::OK;
  }
};

FakeBoundary::FakeBoundary(const std::string& directory) : state_{std::make_shared<State>()} {
  state_->owner = this;
  const std::string session = "7a1d5f0e-1111-4222-8333-0123456789ab";
  auto certificates = pki::make_session_certificates(SessionId{session});
  descriptor_.boundary_id = "sandbox-1";
  descriptor_.generation = "generation-1";
  descriptor_.session_id = session;
  descriptor_.workload_identity = {1000, 1000, {}, "driver", ""};
  descriptor_.transport = boundary::UnixTransport{directory + "/boundary.sock"};
  descriptor_.tls_server_name = certificates->server_name;
  descriptor_.tls_trust_anchor_pem = certificates->ca_certificate;
  descriptor_.tls_client_certificate_pem = certificates->client_certificate;
  descriptor_.tls_client_private_key_pem = certificates->client_key;
  descriptor_.host_gateway_ip = "127.0.0.1";
  descriptor_.outer_fence = {"generation-1",
                             {boundary::kFenceGuarantees.begin(), boundary::kFenceGuarantees.end()},
                             boundary::evidence_digest("generation-1", "{}")};

  grpc::SslServerCredentialsOptions tls{GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY};
  tls.pem_root_certs = certificates->ca_certificate;
  tls.pem_key_cert_pairs.push_back({std::string{certificates->server_key.reveal()}, certificates->server_certificate});
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + directory + "/boundary.sock", grpc::SslServerCredentials(tls));
  builder.RegisterService(state_.get());
  state_->server = builder.BuildAndStart();
}

FakeBoundary::~FakeBoundary() {
  {
    const std::lock_guard lock{state_->mutex};
    state_->closing = true;
    state_->changed.notify_all();
  }
  state_->server->Shutdown(std::chrono::system_clock::now() + 1s);
  state_->server->Wait();
}

std::vector<std::string> FakeBoundary::operations() const {
  const std::lock_guard lock{state_->mutex};
  return state_->operations;
}

bool FakeBoundary::wait_for(const std::string& operation, std::size_t times) const {
  std::unique_lock lock{state_->mutex};
  return state_->changed.wait_for(lock, kPatience, [&] {
    return static_cast<std::size_t>(std::count(state_->operations.begin(), state_->operations.end(), operation)) >= times;
  });
}

std::optional<boundary::StartAgent> FakeBoundary::started() const {
  const std::lock_guard lock{state_->mutex};
  return state_->started;
}

std::vector<boundary::Exec> FakeBoundary::execs() const {
  const std::lock_guard lock{state_->mutex};
  return state_->execs;
}

void FakeBoundary::exit_main(int code) {
  const std::lock_guard lock{state_->mutex};
  state_->main_code = code;
  state_->changed.notify_all();
}

void FakeBoundary::main_says(boundary::Channel channel, const std::string& bytes) {
  const std::lock_guard lock{state_->mutex};
  state_->main_frames.push_back(boundary::encode_process_frame(channel, bytes));
  state_->changed.notify_all();
}

void FakeBoundary::main_output_ends(int code) {
  const std::lock_guard lock{state_->mutex};
  state_->main_end = code;
  state_->changed.notify_all();
}

bool FakeBoundary::main_hears(const std::string& expected) const {
  std::unique_lock lock{state_->mutex};
  return state_->changed.wait_for(lock, kPatience, [&] { return state_->main_heard == expected; });
}

std::size_t FakeBoundary::main_events_sent() const {
  const std::lock_guard lock{state_->mutex};
  return state_->main_sent;
}

void FakeBoundary::cut_main_stream(std::uint64_t first) {
  const std::lock_guard lock{state_->mutex};
  ++state_->main_cuts;
  state_->main_first = first;
  state_->changed.notify_all();
}

FakeBoundary::OpenResult FakeBoundary::open(const std::string& destination, const std::string& binary, const std::string& bytes) {
  auto pending = std::make_shared<State::PendingOpen>();
  pending->open.identity = boundary::ResolvedIdentity{{binary, std::string(64, 'a')}, {}, {}};
  pending->open.destination = destination;
  pending->open.socket.process_generation = kOpenerPid;
  pending->bytes = bytes;
  pending->result = std::make_shared<OpenResult>();
  std::unique_lock lock{state_->mutex};
  state_->opens.push_back(pending);
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kPatience, [&] { return pending->done; });
  return *pending->result;
}

std::string FakeBoundary::resolve(const std::string& name) {
  std::unique_lock lock{state_->mutex};
  const auto id = state_->next_question + state_->questions.size();
  state_->questions.push_back(question_for(name));
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kPatience, [&] { return state_->answers.count(id) != 0; });
  return state_->answers[id];
}

}  // namespace openshell::supervisor::test
