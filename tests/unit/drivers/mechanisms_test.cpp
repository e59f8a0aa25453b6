#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "drivers/process/cgroup_limits.hpp"
#include "drivers/process/directories.hpp"
#include "drivers/process/identity_slots.hpp"
#include "drivers/process/launch_plan.hpp"
#include "drivers/process/monitor.hpp"
#include "drivers/process/mount_plan.hpp"
#include "drivers/process/mountinfo.hpp"
#include "drivers/process/process_handle.hpp"
#include "drivers/process/sandbox_files.hpp"

namespace openshell::drivers::process {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Directory {
 public:
  Directory() {
    char name[] = "/tmp/osdu.XXXXXX";
    path = mkdtemp(name);
  }
  ~Directory() { fs::remove_all(path); }
  std::string path;
};

// --- messages between driver and monitor
// ---------------------------------------------------------------------------------------------------

LaunchPlan sample_plan() {
  LaunchPlan plan;
  plan.mode = LaunchMode::kSingleId;
  plan.sandbox_id = "id";
  plan.mounts = {{.kind = MountStep::Kind::kTmpfs, .target = "/", .read_only = true, .mode = 0755, .size_bytes = 4096},
                 {.kind = MountStep::Kind::kBind, .target = "/usr", .source = "/usr", .recursive = true}};
  plan.uid_map = {{1000, 65534, 1}};
  plan.groups = {3, 4};
  plan.init_argv = {"/bin/true", ""};
  return plan;
}

TEST(LaunchPlan, RoundTrip) {
  const auto again = decode<LaunchPlan>(encode(sample_plan()));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(encode(*again), encode(sample_plan()));
  EXPECT_EQ(again->mounts[1].source, "/usr");
  EXPECT_TRUE(again->mounts[0].read_only);
  EXPECT_EQ(again->init_argv, (std::vector<std::string>{"/bin/true", ""}));
}

TEST(LaunchPlan, DamagedBytesAreRefused) {
  const std::string bytes = encode(sample_plan());
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) EXPECT_FALSE(decode<LaunchPlan>(bytes.substr(0, cut)).ok()) << cut;
  EXPECT_FALSE(decode<LaunchPlan>(bytes + "x").ok());
  EXPECT_FALSE(decode<std::int32_t>("abc").ok());
  EXPECT_FALSE(decode<NetworkFacts>(std::string(4, '\xff')).ok()) << "a length that is not there";
}

TEST(LaunchPlan, FramesAreBoundedAndWhole) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  Descriptor a{ends[0]}, b{ends[1]};
  ASSERT_TRUE(send_frame(a.get(), Word::kProbe, "body").ok());
  const auto frame = receive_frame(b.get());
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(frame->word, Word::kProbe);
  EXPECT_EQ(frame->body, "body");
  EXPECT_FALSE(send_frame(a.get(), Word::kProbe, std::string(kMaxFrameBytes + 1, 'x')).ok());
  const std::uint32_t size = kMaxFrameBytes + 1;
  ASSERT_EQ(write(a.get(), &size, 4), 4);
  ASSERT_EQ(write(a.get(), "x", 1), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(receive_frame(b.get()).status()));
  a.reset();
  EXPECT_TRUE(absl::IsUnavailable(receive_frame(b.get()).status()));
}

TEST(ExitRecord, RoundTripAndStrict) {
  for (const ExitRecord& record :
       {ExitRecord{"g", {}, {}}, ExitRecord{"g", ExitStatus{7, 3, 0}, {}}, ExitRecord{"g", ExitStatus{7, 0, 9}, ExitStatus{8, 75, 0}}}) {
    const auto again = parse_exit_record(serialise(record));
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*again, record);
  }
  for (const char* text : {"", "{}", "{\"generation\":\"g\"", "{\"generation\":\"g\",\"init\":{\"pid\":x}}\n", "garbage"})
    EXPECT_FALSE(parse_exit_record(text).ok()) << text;
}

// --- mount table
// ---------------------------------------------------------------------------------------------------------------------------

constexpr const char* kMountinfo =
    "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n"
    "31 27 0:30 / /mnt/with\\040space ro,nosuid,nodev,noexec shared:1 master:2 - tmpfs none rw\n"
    "33 27 254:0 /srv/data /usr/data rw - ext4 /dev/vda rw\n"
    "34 27 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

TEST(Mountinfo, ParsesAndFinds) {
  const auto mounts = parse_mountinfo(kMountinfo);
  ASSERT_TRUE(mounts.ok());
  ASSERT_EQ(mounts->size(), 4u);
  EXPECT_EQ((*mounts)[1].mount_point, "/mnt/with space");
  EXPECT_TRUE((*mounts)[1].read_only && (*mounts)[1].no_suid && (*mounts)[1].no_dev && (*mounts)[1].no_exec);
  EXPECT_EQ((*mounts)[3].super_options, "rw,memory");
  EXPECT_EQ(mount_of(*mounts, "/usr/data/x")->root, "/srv/data");
  EXPECT_EQ(root_within(*mount_of(*mounts, "/usr/data/x"), "/usr/data/x"), "/srv/data/x");
  EXPECT_EQ(root_within(*mount_of(*mounts, "/usr/bin"), "/usr/bin"), "/usr/bin");
  EXPECT_EQ(mount_of(*mounts, "/usr/database")->mount_point, "/") << "a name that only begins alike";
  EXPECT_FALSE(parse_mountinfo("27 1 254:0 /\n").ok());
  EXPECT_FALSE(parse_mountinfo("27 1 254:0 / / rw,relatime -\n").ok());
}

TEST(MountPlan, NothingOfTheHostThatHoldsSocketsOrSecrets) {
  Directory dir;
  RootInputs inputs;
  inputs.sandbox_id = "x";
  inputs.sandbox_name = "n";
  inputs.bundle_dir = inputs.launch_dir = inputs.channel_dir = inputs.ca_dir = inputs.workspace_dir = inputs.tmp_dir = inputs.log_dir =
      dir.path;
  inputs.host_sockets = {"/usr/.", "/opt/x/sock"};
  const auto plan = plan_host_root(inputs);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const MountStep& step : plan->steps) {
    if (step.kind != MountStep::Kind::kBind) continue;
    for (const char* hidden : {"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/etc/openshell", "/etc/passwd", "/etc/group",
                               "/etc/machine-id", "/etc/hosts"}) {
      EXPECT_FALSE(is_below(step.source, hidden)) << step.source;
    }
    for (const char* tree : {"/run", "/var", "/home", "/root", "/srv", "/mnt", "/proc", "/boot"})
      EXPECT_FALSE(is_below(step.source, tree)) << step.source;
    const bool writable = step.target == "/tmp" || step.target == "/sandbox" || step.target == "/.openshell/sandbox" ||
                          step.target == "/.openshell/channel" || step.target == "/run/openshell-supervisor-ca" || step.devices;
    EXPECT_EQ(step.read_only, !writable) << step.target;
  }
  const auto covered = [&plan](const std::string& target) {
    return std::any_of(plan->steps.begin(), plan->steps.end(),
                       [&](const MountStep& s) { return s.kind == MountStep::Kind::kTmpfs && s.target == target && s.read_only; });
  };
  EXPECT_TRUE(covered("/usr")) << "a directory with a host's socket";
  EXPECT_EQ(plan->steps.front().target, "/");
}

TEST(MountPlan, SocketPathsOfTheHost) {
  EXPECT_THAT(bound_socket_paths("Num RefCount Protocol Flags Type St Inode Path\n"
                                 "0000: 00000002 00000000 00010000 0001 01 1 /run/dbus/sock et\n0000: 00000002 00000000 00010000 0001 01 2 "
                                 "@abstract\n0000: 2 0 0 1 1 3\n"),
              ElementsAre("/run/dbus/sock et"));
}

// --- identities
// ----------------------------------------------------------------------------------------------------------------------------

TEST(IdentitySlots, LowestFreeAndHeldByOne) {
  Directory dir;
  IdentitySlots one{dir.path, {100'000, 100'047}, "/state/one"}, two{dir.path, {100'000, 100'047}, "/state/two"};
  EXPECT_EQ(*one.take("a"), 0u);
  EXPECT_EQ(*two.take("b"), 1u) << "two gateways share no slot";
  EXPECT_EQ(*one.take("c"), 2u);
  EXPECT_EQ(one.base(2), 100'032u);
  EXPECT_EQ(one.take("d").status().message(), "sandbox_uid_range is exhausted");
  two.release(0, "a");
  EXPECT_TRUE(absl::IsResourceExhausted(one.take("d").status())) << "a slot of another is left alone";
  one.release(0, "a");
  EXPECT_EQ(*one.take("d"), 0u);
  one.release_unknown([](const std::string& id) { return id == "d"; });
  EXPECT_EQ(*one.take("e"), 2u) << "of c, which is not known";
  EXPECT_FALSE(fs::exists(dir.path + "/3"));
  EXPECT_TRUE(fs::exists(dir.path + "/1")) << "b is another gateway's";
}

TEST(IdentitySlots, TakenBackAfterAHostRestart) {
  Directory dir;
  IdentitySlots slots{dir.path, {100'000, 100'031}, "/state"};
  EXPECT_TRUE(slots.retake(1, "a").ok());
  EXPECT_TRUE(slots.retake(1, "a").ok());
  EXPECT_FALSE(slots.retake(1, "b").ok());
  EXPECT_EQ(*slots.take("c"), 0u);
}

TEST(IdentitySlots, RangeFitsTheHost) {
  const IdRange range{1'900'000'000, 1'900'065'535};
  EXPECT_TRUE(check_range(range, "root:x:0:0:root:/root:/bin/sh\n", "root:x:0:\n", "u:100000:65536\n", "").ok());
  EXPECT_THAT(std::string(check_range(range, "app:x:1900000016:5::/:/bin/sh\n", "", "", "").message()),
              HasSubstr("\"app\" of /etc/passwd"));
  EXPECT_THAT(std::string(check_range(range, "", "app:x:1900065535:\n", "", "").message()), HasSubstr("/etc/group"));
  EXPECT_THAT(std::string(check_range(range, "", "", "u:1899999990:11\n", "").message()), HasSubstr("/etc/subuid"));
  EXPECT_TRUE(check_range(range, "", "", "u:1899999990:10\n", "").ok()) << "ends right before it";
  EXPECT_FALSE(check_range(range, "", "", "", "u:1900065535:1\n").ok());
  for (const IdRange& bad : {IdRange{65'535, 65'550}, IdRange{100'000, 100'014}, IdRange{100'000, 99'999},
                             IdRange{2'147'483'633, 2'147'483'648}, IdRange{100'000, 100'016}}) {
    EXPECT_FALSE(check_range(bad, "", "", "", "").ok()) << bad.first << "-" << bad.last;
  }
  EXPECT_TRUE(check_range({65'536, 65'551}, "", "", "", "").ok());
  EXPECT_TRUE(check_range({2'147'483'632, 2'147'483'647}, "", "", "", "").ok());
}

// --- directories
// ---------------------------------------------------------------------------------------------------------------------------

TEST(Directories, SymlinkOrForeignDirectoryIsRefused) {
  Directory dir;
  const Descriptor base{open(dir.path.c_str(), O_RDONLY | O_DIRECTORY)};
  const Owner own{geteuid(), getegid()};
  EXPECT_TRUE(make_directory(base.get(), "new", 0711, own).ok());
  struct stat info {};
  ASSERT_EQ(stat((dir.path + "/new").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0711u);
  EXPECT_TRUE(make_directory(base.get(), "new", 0700, own).ok()) << "adopted, with the mode that is wanted now";
  fs::create_symlink("/etc", dir.path + "/link");
  EXPECT_FALSE(make_directory(base.get(), "link", 0700, own).ok());
  std::ofstream(dir.path + "/file") << "x";
  EXPECT_FALSE(make_directory(base.get(), "file", 0700, own).ok());
  EXPECT_THAT(std::string(make_directory(base.get(), "new", 0700, {own.uid + 1, own.gid}).status().message()), HasSubstr("belongs to uid"));
}

TEST(Directories, FilesReplaceWhatIsThereWithoutFollowingIt) {
  Directory dir;
  const Descriptor base{open(dir.path.c_str(), O_RDONLY | O_DIRECTORY)};
  std::ofstream(dir.path + "/victim") << "stays";
  fs::create_symlink(dir.path + "/victim", dir.path + "/name");
  ASSERT_TRUE(write_file(base.get(), "name", "content", 0400, {geteuid(), getegid()}).ok());
  EXPECT_EQ(*read_file(base.get(), "name", 7), "content");
  EXPECT_TRUE(absl::IsOutOfRange(read_file(base.get(), "name", 6).status()));
  EXPECT_EQ(*read_file(base.get(), "victim", 100), "stays");
  EXPECT_TRUE(absl::IsNotFound(read_file(base.get(), "none", 100).status()));
  fs::create_symlink("victim", dir.path + "/link");
  EXPECT_FALSE(read_file(base.get(), "link", 100).ok()) << "a symlink is not read through";
}

TEST(Directories, RemoveTreeStaysInItsTree) {
  Directory dir;
  const Descriptor base{open(dir.path.c_str(), O_RDONLY | O_DIRECTORY)};
  fs::create_directories(dir.path + "/tree/a/b");
  fs::create_directories(dir.path + "/outside");
  std::ofstream(dir.path + "/outside/file") << "stays";
  fs::create_symlink("../outside", dir.path + "/tree/link");
  std::string deep = dir.path + "/tree/d";
  for (int i = 0; i < 200; ++i) deep += "/d";
  fs::create_directories(deep);
  EXPECT_TRUE(*remove_tree(base.get(), "tree"));
  EXPECT_FALSE(fs::exists(dir.path + "/tree"));
  EXPECT_TRUE(fs::exists(dir.path + "/outside/file"));
  EXPECT_FALSE(*remove_tree(base.get(), "tree"));
  fs::create_symlink("outside", dir.path + "/tree");
  EXPECT_TRUE(*remove_tree(base.get(), "tree"));
  EXPECT_TRUE(fs::exists(dir.path + "/outside/file"));
}

TEST(Directories, IdsThatAreFit) {
  for (const char* id : {"", ".", "..", "a/b", "-a", "a_b", "a b", "probe\n"}) EXPECT_FALSE(is_valid_id(id)) << id;
  EXPECT_TRUE(is_valid_id(std::string(64, 'a')));
  EXPECT_FALSE(is_valid_id(std::string(65, 'a')));
  EXPECT_TRUE(is_valid_id("0d6e2a50-3a3f-4f59-9d3e-0f6a4a0f3c11"));
}

// --- processes
// -----------------------------------------------------------------------------------------------------------------------------

TEST(ProcessHandle, RecognisedByStartTime) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const auto mark = mark_of(child);
  ASSERT_TRUE(mark.ok());
  auto handle = open_process(*mark);
  ASSERT_TRUE(handle.ok());
  EXPECT_FALSE(has_ended(handle->get()));
  EXPECT_TRUE(absl::IsNotFound(open_process({child, mark->start_ticks + 1}).status())) << "another process with that number";
  EXPECT_TRUE(send_signal(handle->get(), SIGKILL).ok());
  EXPECT_TRUE(wait_ended(handle->get(), std::chrono::seconds{5}));
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(absl::IsNotFound(open_process(*mark).status()));
  EXPECT_TRUE(send_signal(handle->get(), SIGKILL).ok()) << "an ended process is no error";
}

}  // namespace
}  // namespace openshell::drivers::process
