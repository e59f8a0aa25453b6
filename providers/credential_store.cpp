#include "providers/credential_store.hpp"
