#pragma once
#include <hw_torchlite.h>
