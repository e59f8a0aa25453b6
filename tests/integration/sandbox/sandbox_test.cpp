// The program openshell-sandbox over its real channel.
#include "tests/integration/sandbox/fixture.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

namespace openshell::sandbox::test {
namespace {

using boundary::Error;
using boundary::ErrorKind;

std::string message(const boundary::Response& response) {
  const auto* error = std::get_if<Error>(&response);
  return error ? error->message : std::string(boundary::result_name(response));
}

TEST_F(SandboxProcess, ST_16_ST_20_DiscoverAttachConfirmStart) {  // ST-13, ST-14
  ASSERT_NO_FATAL_FAILURE(start());
  const auto policy_file = client->ask(boundary::DiscoverPolicy{});
  ASSERT_TRUE(std::holds_alternative<boundary::ImagePolicy>(policy_file));
  const auto confirmed = std::get<boundary::Confirmed>(client->ask(boundary::Confirm{})).confirmation;
  EXPECT_EQ(confirmed.authenticated_supervisor, kInstance);
  EXPECT_EQ(confirmed.generation, "g1");
  EXPECT_TRUE(confirmed.runtime_exit_terminates_workload);
  ASSERT_TRUE(confirmed.backend_audit);
  auto derived = boundary::properties_of(*confirmed.backend_audit);
  ASSERT_TRUE(derived.ok()) << derived.status();
  EXPECT_EQ(*derived, confirmed.properties);
  EXPECT_NE(::access((dir_ / "material/bootstrap.json").c_str(), F_OK), 0) << "the bootstrap is consumed";
  EXPECT_NE(::access((dir_ / "material/key.pem").c_str(), F_OK), 0) << "so is the key";
}

TEST_F(SandboxProcess, ExecGivesOutputErrorExitCodeAndTakesInput) {
  ASSERT_NO_FATAL_FAILURE(start());
  auto result = exec("echo out; echo err >&2; exit 7");
  EXPECT_EQ(result.refused, "");
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
  ASSERT_TRUE(result.status);
  EXPECT_EQ(result.status->code(), 7);
  result = exec("cat; echo done", "hello\n");
  EXPECT_EQ(result.out, "hello\ndone\n");
  result = exec("kill -TERM $$");
  ASSERT_TRUE(result.status);
  EXPECT_EQ(result.status->code(), 143);
  result = exec("echo $FROM_USER $API_TOKEN $OPENSHELL_SANDBOX $HOME $USER $TERM $SSL_CERT_FILE; pwd; id -u");
  EXPECT_EQ(result.out, "yes placeholder 1 /sandbox sandbox dumb /run/openshell-supervisor-ca/material/ca-bundle.crt\n/sandbox\n" +
                            std::to_string(kUid) + "\n");
  result = exec("cat /run/openshell-supervisor-ca/material/ca.crt /run/openshell-supervisor-ca/system-bundle.crt");
  EXPECT_EQ(result.out, "-----CA-----\n-----BUNDLE-----\n");
}

TEST_F(SandboxProcess, TenMebibytesArriveWhole) {
  ASSERT_NO_FATAL_FAILURE(start());
  const auto begin = std::chrono::steady_clock::now();
  auto result = exec("head -c 10485760 /dev/zero");
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(result.out.size(), 10'485'760u);
  EXPECT_EQ(result.status, (boundary::ExitStatus{false, 0}));
  std::printf("10 MiB of output in %.0f ms\n", ms);
  result = exec("wc -c", std::string(3'000'000, 'x'));
  EXPECT_EQ(result.out, "3000000\n");
  std::ifstream children{"/proc/" + std::to_string(unshare_) + "/task/" + std::to_string(unshare_) + "/children"};
  pid_t sandbox = 0;
  children >> sandbox;
  std::ifstream memory{"/proc/" + std::to_string(sandbox) + "/smaps_rollup"};
  for (std::string line; std::getline(memory, line);) {
    if (line.starts_with("Pss_Anon") || line.starts_with("Rss")) std::printf("%s\n", line.c_str());
  }
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(exec("true").status, (boundary::ExitStatus{false, 0}));
  std::printf("exec of true: %.1f ms\n", std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - before).count() / 20);
}

TEST_F(SandboxProcess, RT_10_RT_16_WorkloadIsConfined) {  // IS-25
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_NE(exec("ls /.openshell").status->code(), 0);
  EXPECT_NE(exec("cat /.openshell/channel/control.sock").status->code(), 0);
  EXPECT_NE(exec("touch /usr/x").status->code(), 0);
  EXPECT_EQ(exec("touch /sandbox/x /tmp/y").status->code(), 0);
  EXPECT_NE(exec("cat /proc/1/environ").status->code(), 0);
  EXPECT_NE(exec("kill -9 1").status->code(), 0);
}

TEST_F(SandboxProcess, IS_07_IS_37_ExternalConnectIsDecidedAndRelayed) {  // BIN-01, NET-10, NET-51, ST-28
  ASSERT_NO_FATAL_FAILURE(start());
  auto accept = client->open(boundary::AcceptNetwork{});
  std::thread supervisor{[&] {
    auto response = accept->response();
    ASSERT_TRUE(response);
    const auto* open = std::get_if<boundary::NetworkConnected>(&*response);
    ASSERT_NE(open, nullptr) << message(*response);
    EXPECT_EQ(open->destination, "203.0.113.9:80");
    const auto* identity = std::get_if<boundary::ResolvedIdentity>(&open->identity);
    ASSERT_NE(identity, nullptr);
    EXPECT_NE(identity->executable.path.find("bash"), std::string::npos);
    ASSERT_TRUE(accept->send(boundary::encode_process_frame(boundary::Channel::tcp_decision,
                                                            boundary::encode_open_decision(boundary::OpenDecision::relay_ready)) +
                             "hello "));
    std::string got;
    while (auto bytes = accept->receive()) {
      if (bytes->empty()) break;  // the workload ended its direction
      got += *bytes;
      if (got == "ping\n") {
        accept->send("world\n");
        accept->send_end();
      }
    }
    EXPECT_EQ(got, "ping\n");
    EXPECT_TRUE(accept->finish().ok());
  }};
  auto result = exec("exec 3<>/dev/tcp/203.0.113.9/80; echo ping >&3; cat <&3");
  EXPECT_EQ(result.out, "hello world\n") << result.err;
  supervisor.join();
}

TEST_F(SandboxProcess, DeniedConnectIsEacces) {
  ASSERT_NO_FATAL_FAILURE(start());
  auto accept = client->open(boundary::AcceptNetwork{});
  std::thread supervisor{[&] {
    ASSERT_TRUE(accept->response());
    accept->send(boundary::encode_process_frame(boundary::Channel::tcp_decision,
                                                boundary::encode_open_decision(boundary::OpenDecision::policy_denied)));
    accept->finish();
  }};
  auto result = exec("exec 3<>/dev/tcp/203.0.113.9/81");
  EXPECT_NE(result.err.find("Permission denied"), std::string::npos) << result.err;
  supervisor.join();
}

/// Anonymous memory of a process, in bytes.
std::int64_t anonymous_bytes(pid_t pid) {
  std::ifstream status{"/proc/" + std::to_string(pid) + "/status"};
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1'024;
  }
  return -1;
}

TEST_F(SandboxProcess, MemoryStaysLevelOverConnectsAndExecs) {  // CX-38, ST-24
  constexpr int kWarmUp = 500, kOpens = 3'000, kExecs = 200;
  // A call that is never freed costs more than 4 KB: 13 MB in all. What an exec id leaves in the ledgers is 0.9 KB, for at most 4,096.
  constexpr std::int64_t kMayGrow = std::int64_t{4} << 20;
  ASSERT_NO_FATAL_FAILURE(start());
  std::ifstream children{"/proc/" + std::to_string(unshare_) + "/task/" + std::to_string(unshare_) + "/children"};
  pid_t sandbox = 0;
  children >> sandbox;
  const auto connects = [&](int count) {
    std::thread supervisor{[&] {
      for (int i = 0; i < count; ++i) {
        auto accept = client->open(boundary::AcceptNetwork{});
        ASSERT_TRUE(accept->response());
        accept->send(boundary::encode_process_frame(boundary::Channel::tcp_decision,
                                                    boundary::encode_open_decision(boundary::OpenDecision::policy_denied)));
        accept->finish();
      }
    }};
    const auto result =
        exec("python3 -c \"\nimport socket\nn=0\nfor i in range(" + std::to_string(count) +
             "):\n s=socket.socket()\n try: s.connect(('203.0.113.9',81))\n except PermissionError: n+=1\n s.close()\nprint(n)\"");
    EXPECT_EQ(result.out, std::to_string(count) + "\n") << result.err;
    supervisor.join();
  };
  connects(kWarmUp);
  const std::int64_t before = anonymous_bytes(sandbox);
  ASSERT_GT(before, 0);
  connects(kOpens);
  for (int i = 0; i < kExecs; ++i) EXPECT_EQ(exec("true").status, (boundary::ExitStatus{false, 0}));
  const std::int64_t grown = anonymous_bytes(sandbox) - before;
  std::printf("anonymous memory: %lld KiB before, %lld KiB more after %d connects and %d execs\n", static_cast<long long>(before / 1'024),
              static_cast<long long>(grown / 1'024), kOpens, kExecs);
  EXPECT_LT(grown, kMayGrow);
}

TEST_F(SandboxProcess, RT_33_RT_35_ST_27_DnsGoesThroughTheMediateStream) {  // NET-05, NET-06, NET-14, SIG-08
  ASSERT_NO_FATAL_FAILURE(start());
  auto mediation = client->mediate();
  ASSERT_TRUE(std::holds_alternative<boundary::MediationReady>(*mediation->response()));
  std::thread supervisor{[&] {
    boundary::MediationFrameDecoder decoder;
    while (auto bytes = mediation->receive()) {
      ASSERT_TRUE(decoder.append(*bytes).ok());
      while (auto frame = decoder.next()) {
        auto question = *boundary::decode_dns_question(frame->json);
        std::string reply = question.request;  // an answer with no records
        const std::size_t head = question.tcp ? 2 : 0;
        reply[head + 2] = static_cast<char>(0x81);
        reply[head + 3] = static_cast<char>(0x80);
        mediation->send(
            boundary::encode_mediation_frame({boundary::MediationKind::dns_answer, frame->stream_id, boundary::encode_dns_answer(reply)}));
        if (question.tcp) return;
      }
    }
  }};
  const std::string ask =
      "import socket,struct\n"
      "q=b'\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0\\1a\\4test\\0\\0\\1\\0\\1'\n"
      "u=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);u.settimeout(5);u.connect(('127.0.0.53',53));u.send(q);print(u.recv(512)[:4].hex()"
      ")\n"
      "t=socket.create_connection(('127.0.0.53',53));t.sendall(struct.pack('>H',len(q))+q);print(t.recv(512)[:6].hex())\n";
  auto result = exec("python3 -c \"" + ask + "\"");
  EXPECT_EQ(result.out, "12348180\n001812348180\n") << result.err;
  supervisor.join();
}

TEST_F(SandboxProcess, KillEndsTheWholeTreeOfAnExec) {
  ASSERT_NO_FATAL_FAILURE(start());
  boundary::Exec request{static_cast<std::uint64_t>(time(nullptr)) * 1000 + 30'000, {}};
  request.spec.shell = boundary::ShellSpec{"setsid sleep 1000 & echo up; sleep 1000", false};
  auto call = client->open(request);
  auto response = call->response();
  ASSERT_TRUE(response);
  const auto id = std::get<boundary::ExecStarted>(*response).process_id;
  ASSERT_TRUE(call->receive());  // "up"
  EXPECT_EQ(message(client->ask(boundary::Terminate{id})), "terminated");
  const auto waited = client->ask(boundary::Wait{id});
  ASSERT_TRUE(std::holds_alternative<boundary::Exited>(waited)) << message(waited);
  EXPECT_EQ(exec("pgrep -c sleep").out, "0\n");
}

TEST_F(SandboxProcess, CX_41_ExecIdRunsOnceAndReplayIsRefused) {  // CX-42
  ASSERT_NO_FATAL_FAILURE(start());
  const std::string id = new_uuid();
  boundary::Exec request{static_cast<std::uint64_t>(time(nullptr)) * 1000 + 30'000, {}};
  request.spec.shell = boundary::ShellSpec{"echo x >> /sandbox/count; sleep 0.2", false};
  {
    auto call = client->open(request, id);
    auto result = collect(*call);
    EXPECT_EQ(result.status, (boundary::ExitStatus{false, 0}));
  }
  auto again = client->open(request, id);
  EXPECT_EQ(collect(*again).status, (boundary::ExitStatus{false, 0})) << "the retained output, not another run";
  EXPECT_EQ(exec("wc -l < /sandbox/count").out, "1\n");
  request.spec.shell->command = "echo other";
  EXPECT_EQ(message(client->ask(request, id)), "exec request ID was reused with a different payload");
  request.expires_at_unix_ms = 1;
  EXPECT_EQ(message(client->ask(request)), "exec request has expired; it cannot be executed again");
}

TEST_F(SandboxProcess, MainIsAttachedOnceAndItsExitIsWaitedFor) {  // CX-45
  ASSERT_NO_FATAL_FAILURE(start());
  auto main = client->open(boundary::AttachProcess{"g1:main:0"});
  auto attached = main->response();
  ASSERT_TRUE(attached && std::holds_alternative<boundary::ProcessAttached>(*attached));
  EXPECT_EQ(message(client->ask(boundary::AttachProcess{"g1:main:0"})), "process already has a control attachment");
  main->send(boundary::encode_process_frame(boundary::Channel::stdin_data, "echo alive\n"));
  std::string out;
  boundary::ProcessFrameDecoder decoder;
  while (out.find("alive") == std::string::npos) {
    auto bytes = main->receive();
    ASSERT_TRUE(bytes);
    ASSERT_TRUE(decoder.append(*bytes).ok());
    while (auto frame = decoder.next()) out += frame->payload;
  }
  auto wait = client->open(boundary::Wait{"g1:main:0"});
  main->send(boundary::encode_process_frame(boundary::Channel::stdin_data, "exit 5\n"));
  auto exited = wait->response();
  ASSERT_TRUE(exited);
  EXPECT_EQ(std::get<boundary::Exited>(*exited).status.code(), 5);
  EXPECT_EQ(exec("echo still").out, "still\n") << "the main process ended, the sandbox goes on";
  boundary::Exec late{static_cast<std::uint64_t>(time(nullptr)) * 1000 + 30'000, {}};
  late.spec.shell = boundary::ShellSpec{"exit 9", false};
  auto call = client->open(late);
  auto started = call->response();
  ASSERT_TRUE(started && std::holds_alternative<boundary::ExecStarted>(*started));
  const auto waited = client->ask(boundary::Wait{std::get<boundary::ExecStarted>(*started).process_id});
  ASSERT_TRUE(std::holds_alternative<boundary::Exited>(waited)) << message(waited);
  EXPECT_EQ(std::get<boundary::Exited>(waited).status.code(), 9);
}

TEST_F(SandboxProcess, RT_38_RT_44_RT_45_RT_46_CutLinkFreezesAndTheSameSupervisorRecovers) {  // FB-09, FB-15, FB-11
  ASSERT_NO_FATAL_FAILURE(start());
  boundary::Exec request{static_cast<std::uint64_t>(time(nullptr)) * 1000 + 30'000, {}};
  request.spec.shell = boundary::ShellSpec{"i=0; while :; do i=$((i+1)); echo $i > /sandbox/n; done", false};
  auto call = client->open(request);
  ASSERT_TRUE(call->response());
  call.reset();
  client.reset();  // cut
  // Until it is frozen, a connection of another instance may come too early to be refused as such; the same instance is let in again.
  client = connect();
  const auto other = client->ask(attach_request("11111111-2222-4333-8444-555555555555"));
  EXPECT_EQ(message(other), "sandbox runtime is already bound to another supervisor process");
  boundary::Response attached = Error{};
  ASSERT_TRUE(eventually(20, [&] {
    attached = client->ask(attach_request());
    return std::holds_alternative<boundary::Attached>(attached);
  })) << message(attached);
  EXPECT_EQ(message(client->ask(boundary::Wait{"g1:main:0"})), "sandbox boundary is frozen until its supervisor has confirmed again");
  ASSERT_TRUE(std::holds_alternative<boundary::Confirmed>(client->ask(boundary::Confirm{})));
  const auto first = exec("cat /sandbox/n").out;
  EXPECT_TRUE(eventually(20, [&] { return exec("cat /sandbox/n").out != first; })) << "the loop goes on";
  EXPECT_EQ(std::get<boundary::Attached>(attached).snapshot.processes.size(), 2u) << "main and the loop kept their ids";
}

TEST_F(SandboxProcess, RT_47_ExpiryEndsEverythingWithExitCode7) {  // FB-16
  bootstrap.recovery_window_ms = 400;
  ASSERT_NO_FATAL_FAILURE(start());
  const auto begin = std::chrono::steady_clock::now();
  client.reset();
  EXPECT_EQ(exit_code(30), 7);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds{400});
}

TEST_F(SandboxProcess, TerminateBoundaryAnswersWhenNothingIsLeftThenExits) {  // FB-18
  ASSERT_NO_FATAL_FAILURE(start());
  boundary::Exec request{static_cast<std::uint64_t>(time(nullptr)) * 1000 + 30'000, {}};
  request.spec.shell = boundary::ShellSpec{"trap '' TERM; setsid sleep 1000 & sleep 1000", false};
  auto call = client->open(request);
  ASSERT_TRUE(call->response());
  EXPECT_EQ(message(client->ask(boundary::TerminateBoundary{})), "boundary_terminated");
  EXPECT_EQ(exit_code(30), 0);
}

TEST_F(SandboxProcess, RT_25_WrongBearerCertificateOrOrderIsRefused) {  // CA-87
  launch();
  ASSERT_TRUE(eventually(15, [&] { return ::access((dir_ / "channel/control.sock").c_str(), F_OK) == 0; }));
  client = connect();
  EXPECT_EQ(message(client->ask(boundary::Confirm{})), "boundary must be attached before confirm");
  EXPECT_EQ(message(client->ask(start_request())), "boundary must be attached before start_agent");
  Client stranger{descriptor, TokenSigner{}.bearer({"gw", "sandbox-1", "g1", 1, 0, 0, new_uuid()})};
  EXPECT_NE(message(stranger.ask(boundary::DiscoverPolicy{})).find("transport: 16"), std::string::npos);
  auto other = descriptor;
  const auto foreign = *pki::make_session_certificates(SessionId{bootstrap.session_id});
  other.tls_client_certificate_pem = foreign.client_certificate;
  other.tls_client_private_key_pem = foreign.client_key;
  EXPECT_NE(message(Client{other, bearer()}.ask(boundary::DiscoverPolicy{})).find("transport: 14"), std::string::npos);
  other = descriptor;
  other.tls_client_certificate_pem = certificates_.server_certificate;  // signed by the same CA, for another purpose
  other.tls_client_private_key_pem = certificates_.server_key;
  EXPECT_NE(message(Client{other, bearer()}.ask(boundary::DiscoverPolicy{})).find("transport: 14"), std::string::npos);
}

TEST_F(SandboxProcess, SecondStartFindsNoBootstrap) {
  launch();
  ASSERT_TRUE(eventually(15, [&] { return ::access((dir_ / "channel/control.sock").c_str(), F_OK) == 0; }));
  EXPECT_NE(::access((dir_ / "material/bootstrap.json").c_str(), F_OK), 0);
}

TEST_F(SandboxProcess, IdentityThatDiffersIsExit4) {  // RT-76, ST-06
  bootstrap.workload_identity.uid = kUid + 1;
  launch();
  EXPECT_EQ(exit_code(30), 4);
  EXPECT_NE(::access((dir_ / "channel/control.sock").c_str(), F_OK), 0) << "it never listened";
}

}  // namespace
}  // namespace openshell::sandbox::test
